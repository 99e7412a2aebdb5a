"""Labels as users pass them, names of classes, and data frames of probabilities.

Legend: N rows, K classes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Sized
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Floats
from recalib.core.inputs import as_array, as_scores, frame_columns
from recalib.core.label_arrays import check_label_matrix, check_label_scores
from recalib.errors import InputError

#: Names in an error.
_MAX_SHOWN = 10


def check_class_names(
    names: Iterable[Any] | None, classes: int, field: str = "class_labels"
) -> tuple[str, ...] | None:
    """Return names of K classes as texts, None for None.

    Raises
    ------
    InputError: other than K different texts.
    """
    if names is None:
        return None
    accepted = f"{classes} different texts, in the order of the columns"
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(field, found=repr(names), accepted=accepted)
    known = tuple(names)
    for name in known:
        if not isinstance(name, str):
            raise InputError(field, found=repr(name), accepted=accepted)
    if len(set(known)) < len(known):
        twice = [name for name, count in Counter(known).items() if count > 1]
        raise InputError(field, found=f"{_listed(twice)} more than once", accepted=accepted)
    if len(known) != classes:
        raise InputError(field, found=_listed(known), accepted=accepted)
    return tuple(map(str, known))  # without types of NumPy


def check_column_order(
    columns: Sequence[str] | None, names: Sequence[str] | None, field: str
) -> None:
    """Raise `InputError` if columns have the names of the classes in another order."""
    if names is None or columns is None or tuple(columns) == tuple(names):
        return
    if sorted(columns) == sorted(names):
        raise InputError(
            field,
            found=f"columns in the order {_listed(columns)}",
            accepted=f"the order {_listed(names)}",
        )


def as_class_scores(
    values: Any, names: Sequence[str] | None, field: str, *, by_position: bool = True
) -> NDArray[Any]:
    """Return scores as `as_scores`, the columns of a data frame in the order of the classes.

    Columns with the names of all classes are taken by name, others by position.

    Parameters
    ----------
    names: of the classes, if they are known.
    by_position: whether columns may have other names than the classes.

    Raises
    ------
    InputError: as `as_scores`; or columns with the names of some classes, or with other names.
    """
    columns, scores = frame_columns(values, names), as_scores(values, field, names)
    if names is None or columns is None or columns == tuple(names):
        return scores
    if sorted(columns) == sorted(names):
        position = {name: k for k, name in enumerate(columns)}
        return scores[:, [position[name] for name in names]]
    if not by_position or not set(columns).isdisjoint(names):
        accepted = f"columns {_listed(names)}, the classes; or an array, with columns in this order"
        raise InputError(field, found=f"columns {_listed(columns)}", accepted=accepted)
    return scores


def class_indices(
    labels: ArrayLike,
    classes: int,
    names: Sequence[str] | None,
    columns: Sequence[str] | None = None,
    field: str = "labels",
) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Return labels as class numbers, and the names of the classes if they are known.

    Parameters
    ----------
    labels: (N,) or (N, 1): class numbers, texts, categories, or truth values for two classes.
    classes: K.
    names: K, of the classes, in the order of the columns.
    columns: names that are those of the classes if the labels are among them. Without both, texts
        that are class numbers (`"0"` to `"K-1"`) are these numbers, and K different texts or
        categories are taken in sorted order, as scikit-learn does; whole numbers by number.

    Raises
    ------
    InputError: a text that is not a name of a class, names that are not K, `columns` with the names
        in another order, categories in another order than the sorted one without `names`, or a
        matrix.

    Examples
    --------
    >>> class_indices(["dog", "cat", "dog"], 2, None)
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    if isinstance(labels, list | tuple) and any(isinstance(label, str) for label in labels):
        labels = np.array(labels, dtype=object)  # else NaN among texts becomes a text
    values = as_array(labels, field)
    known = None
    if names is not None:
        known = check_class_names(names, classes)
        check_column_order(columns, known, "columns")
    if values.dtype == object and values.ndim == 0:
        accepted = "(N,), a class for each row"
        raise InputError(field, found=type(labels).__name__, accepted=accepted)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 2:
        raise InputError(
            field,
            found=f"shape {values.shape}",
            accepted="(N,), a class for each row: of one-hot rows, their argmax; for independent "
            'labels, task="multilabel"',
        )
    if values.dtype == object and values.ndim == 1:
        values = _plain_array(values, field)
    if values.dtype.kind == "b" and classes == 2:
        return values.astype(np.int64), known
    if values.dtype.kind in "OUST" and values.ndim != 1:
        accepted = "(N,), a class for each row"
        raise InputError(field, found=f"shape {values.shape}", accepted=accepted)
    if values.dtype.kind not in "OUST" or len(values) == 0:
        return values, known
    texts = values.astype(str)
    if known is None and columns is not None and set(texts) & set(columns):
        known = check_class_names(columns, classes, "columns")
    if known is None and set(texts) <= {str(k) for k in range(classes)}:
        return texts.astype(np.int64), known
    if known is None:
        known = _sorted_names(texts, getattr(labels, "dtype", None), classes, field)
    index = {name: k for k, name in enumerate(known)}
    for row, text in enumerate(texts):
        if text not in index:
            raise InputError(f"{field}[{row}]", found=repr(str(text)), accepted=_listed(known))
    return np.array([index[text] for text in texts], np.int64), known


def _plain_array(objects: NDArray[Any], field: str) -> NDArray[Any]:
    """Return objects (N,): texts unchanged, others as an array of truth values or of numbers.

    Raises
    ------
    InputError: a missing value, or objects of several kinds.
    """
    texts = [isinstance(value, str) for value in objects]
    if all(texts):
        return objects
    if any(texts):
        row = texts.index(False)
        accepted = "a text, as in other rows"
        raise InputError(f"{field}[{row}]", found=repr(objects[row]), accepted=accepted)
    is_truth = [isinstance(value, bool | np.bool_) for value in objects]
    for row, value in enumerate(objects):
        if not (is_truth[row] or _is_finite(value)):
            accepted = "a class; leave out rows without a label"
            raise InputError(f"{field}[{row}]", found=f"{value!r:.60}", accepted=accepted)
    if any(is_truth) and not all(is_truth):
        row = is_truth.index(not is_truth[0])
        accepted = "a truth value, as in row 0" if is_truth[0] else "a class number, as in row 0"
        raise InputError(f"{field}[{row}]", found=f"{objects[row]!r:.60}", accepted=accepted)
    return objects.astype(bool if all(is_truth) else np.float64)


def _is_finite(value: Any) -> bool:
    """Return whether a value is a number of float64; missing values are none."""
    try:
        return isinstance(value, Real | Decimal) and math.isfinite(value)
    except (OverflowError, ValueError):  # ValueError: a signal of Decimal
        return False


def _sorted_names(texts: NDArray[np.str_], dtype: Any, classes: int, field: str) -> tuple[str, ...]:
    """Return the names of classes from labels or their categories, which have no other order."""
    categories = getattr(dtype, "categories", None)
    found = np.unique(texts).tolist()
    if isinstance(categories, Sized) and len(categories) == classes:
        named = [str(name) for name in np.asarray(categories)]
        if named != _in_order(named):
            raise InputError(
                field,
                found=f"categories in the order {_listed(named)}",
                accepted="with this order, class_labels: the names in the order of the columns",
            )
        found = named
    if len(found) != classes:
        raise InputError(
            field,
            found=f"{len(found)} different texts for {classes} classes",
            accepted="with texts, class_labels: the names of all classes, in the order of the "
            "columns",
        )
    return tuple(_in_order(found))


def _in_order(names: list[str]) -> list[str]:
    """Return the names sorted: whole numbers by number, others as texts."""
    is_number = all(name.isascii() and name.isdigit() for name in names)
    return sorted(names, key=int) if is_number else sorted(names)


def check_label_rows(
    labels: Any,
    scores: Any,
    input: str,
    names: Iterable[Any] | None,
    classes: int | None = None,
    fields: tuple[str, str] | None = None,
) -> tuple[Floats, NDArray[np.bool_], tuple[str, ...] | None]:
    """Return scores (N, K) and labels (N, K) of independent labels, and their names if known.

    Parameters
    ----------
    input: `logits` for log-odds, or `probabilities`.
    names: of the labels, by default those of the columns of `scores`.
    classes: the expected K, if known.
    fields: names of scores and labels in errors.

    Raises
    ------
    InputError: invalid values, other than K names, or columns of the names in another order.
    """
    scores_field, labels_field = fields or (input, "labels")
    array = as_scores(scores, scores_field, names)
    matrix = check_label_scores(array, input=input, classes=classes, field=scores_field)
    y = check_label_matrix(as_array(labels, labels_field), shape=matrix.shape, field=labels_field)
    columns = frame_columns(scores, names)
    known = check_class_names(names, matrix.shape[1])
    if known is None:
        known = check_class_names(columns, matrix.shape[1], scores_field)
    check_column_order(columns, known, scores_field)
    check_column_order(frame_columns(labels, known), known, labels_field)
    return matrix, y, known


def like(values: Any, probabilities: Floats, names: Sequence[str] | None) -> Any:
    """Return probabilities as a data frame if `values` are one, with its index; else unchanged.

    Parameters
    ----------
    names: of the classes; by default those of the columns of `values`.
    """
    columns = names or frame_columns(values)
    if columns is None or not hasattr(values, "columns") or len(columns) != probabilities.shape[1]:
        return probabilities
    if hasattr(values, "index"):  # pandas
        return type(values)(probabilities, index=values.index, columns=list(columns))
    if hasattr(values, "column_names"):  # Arrow
        return type(values).from_arrays(list(probabilities.T), names=list(columns))
    return type(values)(probabilities, schema=list(columns))  # polars


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _MAX_SHOWN else ""
    return (", ".join(map(str, names[:_MAX_SHOWN])) or "no names") + more
