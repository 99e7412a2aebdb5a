"""Columns of data frames, which have the names of the model's classes.

The client reads the names of a model once, for the first frame whose columns have names.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from recalib.client.errors import PermissionDeniedError
from recalib.client.models import get_model
from recalib.client.operations import Flow, Session
from recalib.core.class_names import as_class_scores, class_indices
from recalib.core.inputs import are_numbered, frame_columns
from recalib.errors import InputError, RecalibWarning


def read_scores(session: Session, model: str, values: Any, field: str) -> Flow[Any]:
    """Return `in_class_order` with the names of the classes of a model on the server.

    A key that may not read the model causes a `RecalibWarning` for each frame: columns are taken by
    position.
    """
    columns, names = frame_columns(values), None
    if columns is not None and not are_numbered(columns):
        try:
            names = yield from read_class_names(session, model, columns)
        except PermissionDeniedError:
            names = session.class_names[model] = ()
        if names == ():
            names = None
            message = (
                f"{field}: the columns are taken by position, since this key may not read the "
                f"names of the classes of model {model!r}"
            )
            warnings.warn(message, RecalibWarning, stacklevel=2)
    return in_class_order(values, names, field)


def read_class_names(
    session: Session, model: str, expected: Sequence[str]
) -> Flow[tuple[str, ...] | None]:
    """Return the names of a model's classes, None without; they are read once.

    Names that are not the expected ones are read again: the model may have been created anew.
    """
    names = session.class_names.get(model)
    if model not in session.class_names or (names and not set(expected) <= set(names)):
        names = (yield from get_model(session, model)).labels
        session.class_names[model] = names
    return names


def read_labels(
    session: Session, model: str, labels: Any, classes: int, columns: Sequence[str] | None
) -> Flow[Any]:
    """Return texts as numbers of classes, a matrix `in_class_order`, and other labels unchanged.

    Parameters
    ----------
    columns: of the scores, which are the names of the classes if the model has none.

    Raises
    ------
    InputError: texts that are no names of classes.
    """
    if is_matrix(labels):
        return (yield from read_scores(session, model, labels, "labels"))
    objects = np.asarray(labels)
    if objects.dtype.kind not in "OUST" or objects.ndim > 1:
        return labels
    texts = {label for label in objects.tolist() if isinstance(label, str)}
    names: Sequence[str] | None = None
    if texts:
        names = (yield from read_class_names(session, model, list(texts))) or columns
    if texts and names is None:
        raise InputError(
            "labels",
            found="texts, but the classes of the model have no names",
            accepted="class numbers, or a model that was created with `classes` as a list of names",
        )
    return class_indices(labels, classes, names)[0]


def is_matrix(labels: Any) -> bool:
    """Return whether labels are zeros and ones (N, K)."""
    shape: tuple[int, ...] = getattr(labels, "shape", ())
    return len(shape) == 2 and shape[1] > 1


def in_class_order(values: Any, names: Sequence[str] | None, field: str) -> Any:
    """Return the columns of a data frame in the order of the classes, and other values unchanged.

    Columns without names, or with numbers, are in the order of the numbers. Columns beside those
    of all classes are no scores.

    Raises
    ------
    InputError: columns with other names than those of the classes.
    """
    if not hasattr(values, "columns") and not hasattr(values, "column_names"):
        return values
    columns = frame_columns(values)
    is_numbered = columns is not None and are_numbered(columns)
    if names is not None and set(names) < set(columns or ()):
        values = select_columns(values, names)
    return as_class_scores(values, names, field, by_position=is_numbered)


def select_columns(values: Any, names: Sequence[str]) -> Any:
    """Return the columns of these names of a data frame, in this order."""
    if hasattr(values, "column_names"):  # Arrow
        return values.select(list(names))
    return values[list(names)]
