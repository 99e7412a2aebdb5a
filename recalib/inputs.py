"""What users pass: tensors, data frames, scores of two classes, and labels with names.

The functions here convert these to the arrays that `recalib.arrays` checks. Servers and files do
not use them: there, only numbers of shape (N, K) are valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.arrays import Floats
from recalib.errors import InputError

__all__ = [
    "CountedRows",
    "as_array",
    "class_indices",
    "column_names",
    "counted_rows",
    "like",
    "score_matrix",
]


def as_array(values: Any, field: str) -> NDArray[Any]:
    """Return `values` as a NumPy array: sequences, data frames, and tensors on any device.

    Tensors may require gradients; bfloat16, which NumPy does not have, becomes float32.

    Raises
    ------
    InputError: rows of different lengths.
    """
    if hasattr(values, "detach"):  # torch, without an import
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    try:
        return np.asarray(values)
    except ValueError:
        accepted = "an array of numbers"
        raise InputError(field, found="rows of different lengths", accepted=accepted) from None


def score_matrix(values: ArrayLike, input: str, field: str) -> NDArray[Any]:
    """Return `values` as an array; scores of two classes (N,) become two columns.

    Parameters
    ----------
    values: (N, K), or (N,): the log-odds of class 1 (`decision_function`) if `input` is `logits`,
        its probability if `input` is `probabilities`.

    Examples
    --------
    >>> score_matrix([0.2, 0.9], "probabilities", "probabilities").round(1).tolist()
    [[0.8, 0.2], [0.1, 0.9]]
    """
    scores = as_array(values, field)
    if scores.ndim != 1 or scores.dtype.kind not in "iuf":
        return scores
    scores = scores.astype(np.promote_types(scores.dtype, np.float16), copy=False)
    other = 1 - scores if input == "probabilities" else np.zeros_like(scores)
    return np.stack([other, scores], axis=1)


@dataclass(frozen=True)
class CountedRows:
    """The rows of a data set that count: scores (n, K) and labels (n,)."""

    scores: NDArray[Any]
    labels: Any
    #: Shape of all labels, (N, ...).
    shape: tuple[int, ...]
    #: Positions of the rows in all labels as one axis, (n,); None if all rows count.
    positions: NDArray[np.intp] | None = None

    def of_rows(self, values: ArrayLike | None, field: str) -> Any:
        """Return `values` of the rows that count, (n,), of those of all rows, (N, ...)."""
        if values is None or self.positions is None:
            return values
        return _of_shape(values, self.shape, field).reshape(-1)[self.positions]

    def groups(self, groups: ArrayLike | None) -> Any:
        """Return the groups of rows, (n,), of groups (N,).

        Pixels of an image are alike: for further axes, groups are of images, by default different.
        """
        if self.positions is None or len(self.shape) == 1:
            return self.of_rows(groups, "groups")
        images = self.positions // int(np.prod(self.shape[1:]))
        if groups is None:
            return images if self.shape[0] > 1 else None
        return _of_shape(groups, self.shape[:1], "groups")[images]


def counted_rows(
    scores: NDArray[Any], labels: ArrayLike, ignore_index: int | None, field: str
) -> CountedRows:
    """Return the rows that count; if these are not all rows (N, K), the scores are a copy.

    Parameters
    ----------
    scores: (N, K), or (N, K, ...) with a prediction for each further position, such as a pixel.
    labels: (N,), or (N, ...).
    ignore_index: the label of rows that do not count; None if all count.
    field: the name of the scores in errors.

    Raises
    ------
    InputError: labels of another shape, or no row that counts.
    """
    if scores.ndim < 3 and ignore_index is None:
        return CountedRows(scores, labels, scores.shape[:1])
    shape = scores.shape[:1] + scores.shape[2:]
    values = _of_shape(labels, shape, "labels")
    counts = np.ones(shape, bool) if ignore_index is None else values != ignore_index
    if not counts.any():
        raise InputError("labels", found="no row that counts", accepted="at least one")
    rows = np.moveaxis(scores, 1, -1)[counts] if scores.ndim > 1 else scores[counts]
    return CountedRows(rows, values[counts], shape, np.flatnonzero(counts))


def _of_shape(values: ArrayLike, shape: tuple[int, ...], field: str) -> NDArray[Any]:
    array = as_array(values, field)
    if array.shape != shape:
        raise InputError(field, found=f"shape {array.shape}", accepted=f"shape {shape}")
    return array


def column_names(values: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns, None if they are missing or not all texts."""
    names = getattr(values, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names)


def _are_texts(values: NDArray[Any], field: str) -> bool:
    """Return whether Python objects (N,) are texts; a missing value among them is an error."""
    texts = [isinstance(value, str) for value in values]
    if any(texts) and not all(texts):
        row = texts.index(False)
        raise InputError(
            f"{field}[{row}]", found=repr(values[row]), accepted="a text, as in other rows"
        )
    missing = [value is None for value in values]
    if any(missing):
        accepted = "a class; leave out rows without a label"
        raise InputError(f"{field}[{missing.index(True)}]", found="None", accepted=accepted)
    return all(texts) and len(texts) > 0


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
    labels: (N,): class numbers, texts, categories, or truth values for two classes.
    classes: K.
    names: of the classes, in the order of the columns.
    columns: names that are those of the classes if the labels are among them. Without both, K
        different texts are taken in sorted order, as scikit-learn does.

    Raises
    ------
    InputError: a text that is not a name of a class, unknown names that are not K, or a matrix.

    Examples
    --------
    >>> class_indices(["dog", "cat", "dog"], 2, None)
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    if isinstance(labels, list | tuple) and any(isinstance(label, str) for label in labels):
        labels = np.array(labels, dtype=object)  # else NaN among texts becomes a text
    values = as_array(labels, field)
    known = None if names is None else tuple(names)
    if values.ndim == 2 and values.shape[1] > 1:
        raise InputError(
            field,
            found=f"shape {values.shape}",
            accepted="(N,), a class for each row: of one-hot rows, their argmax; for independent "
            'labels, task="multilabel"',
        )
    if values.dtype.kind == "b" and classes == 2:
        return values.astype(np.int64), known
    is_text = values.dtype.kind in "UST"
    if values.dtype.kind == "O" and values.ndim == 1:
        is_text = _are_texts(values, field)
    if not is_text or values.ndim != 1:
        return values, known
    texts = values.astype(str)
    if known is None and columns is not None and set(texts) & set(columns):
        known = tuple(columns)
    if known is None:
        found = tuple(np.unique(texts).tolist())
        if len(found) != classes:
            raise InputError(
                field,
                found=f"{len(found)} different texts for {classes} classes",
                accepted="with texts, class_labels: the names of all classes, in the order of the "
                "columns",
            )
        known = found
    index = {name: k for k, name in enumerate(known)}
    for row, text in enumerate(texts):
        if text not in index:
            accepted = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise InputError(f"{field}[{row}]", found=repr(str(text)), accepted=accepted)
    return np.array([index[text] for text in texts], np.int64), known


def like(values: Any, probabilities: Floats, names: Sequence[str] | None) -> Any:
    """Return probabilities as a data frame if `values` are one, with its index; else unchanged.

    Parameters
    ----------
    names: of the classes; by default those of the columns of `values`.
    """
    columns = names or column_names(values)
    if columns is None or not hasattr(values, "columns") or len(columns) != probabilities.shape[1]:
        return probabilities
    if hasattr(values, "index"):  # pandas
        return type(values)(probabilities, index=values.index, columns=list(columns))
    return type(values)(probabilities, schema=list(columns))  # polars
