"""What users pass as scores and weights: sequences, tensors, data frames, scores of two classes.

The functions here convert these to the arrays that `recalib.core.arrays` checks;
`recalib.core.class_names` converts labels. Servers and files do not use them: there, only numbers
are valid.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import two_columns
from recalib.errors import InputError

#: Names of columns that are labels, in files too, and so no scores.
_LABEL_COLUMNS = ("labels", "label")
#: Of rows in a column of lists; a text has a length too.
_LISTS = (list, tuple, np.ndarray)
#: Types of missing values of pandas.
_MISSING = ("NAType", "NaTType")
_MAX = sys.float_info.max
#: The name of a column that ends with the number of a class.
_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)


def as_array(values: Any, field: str) -> NDArray[Any]:
    """Return `values` as a NumPy array: sequences, data frames, and tensors on any device.

    Tensors may require gradients and be sparse; bfloat16 and others that NumPy does not have become
    float32.

    Raises
    ------
    InputError: rows of different lengths, masked values, or a tensor without values.
    """
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise InputError(field, found="masked values", accepted="an array without masked values")
    if hasattr(values, "detach"):  # torch, without an import
        return _tensor_array(values, field)
    if isinstance(values, list | tuple) and any(hasattr(value, "detach") for value in values[:1]):
        values = [as_array(value, field) for value in values]
    try:
        return np.asarray(values)
    except ValueError:
        accepted = "an array of numbers"
        raise InputError(field, found="rows of different lengths", accepted=accepted) from None


def _tensor_array(tensor: Any, field: str) -> NDArray[Any]:
    if tensor.is_meta:
        raise InputError(field, found="a tensor on the device meta", accepted="one with values")
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    tensor = tensor.detach().cpu()
    try:
        return np.asarray(tensor)
    except TypeError:  # a dtype that NumPy does not have
        return np.asarray(tensor.float())


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or a missing one of NumPy or pandas."""
    return value is None or type(value).__name__ in _MISSING or bool(value != value)


def frame_columns(values: Any, classes: Iterable[str] | None = None) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns, None if they are missing or not all texts.

    They are in the order of the classes: numbered columns (`logit_0`, `logit_1`, ..., or numbers
    alone) by number, as in files, or if they are the names of the `classes` as these; others as
    they stand.
    """
    return _ordered_columns(values, classes)[0]


def _ordered_columns(
    values: Any, classes: Iterable[str] | None
) -> tuple[tuple[str, ...] | None, list[int] | None]:
    """Return `frame_columns`, and the positions of numbered columns in order if these move."""
    names = getattr(values, "column_names", None)  # Arrow, whose `columns` are arrays
    names = getattr(values, "columns", None) if names is None else names
    if names is None or not len(names):
        return None, None
    matches = [_NUMBERED.fullmatch(str(name)) for name in names]
    numbers = [int(match[2]) for match in matches if match is not None]
    prefixes = {match[1] for match in matches if match is not None}
    order = None
    if len(prefixes) == 1 and len(set(numbers)) == len(names):
        texts, positions = [str(name) for name in names], range(len(numbers))
        order = sorted(positions, key=numbers.__getitem__)
        if isinstance(classes, Collection) and sorted(texts) == sorted(map(str, classes)):
            order = [texts.index(str(name)) for name in classes]
        names = [names[k] for k in order]
        order = None if order == [*positions] else order
    return tuple(names) if all(isinstance(name, str) for name in names) else None, order


def are_numbered(columns: Sequence[str]) -> bool:
    """Return whether names of columns are a common prefix and different numbers."""
    matches = [match for name in columns if (match := _NUMBERED.fullmatch(name)) is not None]
    is_all = len({match[2] for match in matches}) == len(columns)
    return is_all and len({match[1] for match in matches}) == 1


def check_index(**values: Any) -> None:
    """Raise `InputError` for arguments that are no pairs of rows.

    Scores and `labels` may be swapped. Pandas objects may have the same index in another order:
    rows are paired by position. An index that numbers the rows from 0 pairs with every other index
    that has other values.

    Parameters
    ----------
    values: of one data set, by field; the first are its scores.
    """
    field, scores = next(iter(values.items()))
    if _are_swapped(scores, values["labels"], field):
        raise InputError(
            "labels",
            found=f"scores, and labels as {field}: the two are swapped",
            accepted=f"labels, (N,); as keywords, `labels=` and `{field}=`, they have any order",
        )
    first, ours = "", None
    for name, value in values.items():
        theirs: Any = getattr(value, "index", None)
        if not hasattr(theirs, "equals"):  # no pandas object
            continue
        if ours is None:
            first, ours = name, theirs
        if len(ours) != len(theirs) or ours.equals(theirs):
            continue
        is_default = any(np.array_equal(index, np.arange(len(index))) for index in (ours, theirs))
        if is_default and set(ours) != set(theirs):
            continue
        raise InputError(
            name,
            found=f"another index than that of {first}",
            accepted=f"rows in the order of {first}: {name}.loc[{first}.index], or without an "
            f"index {name}.to_numpy()",
        )


def _are_swapped(scores: Any, labels: Any, field: str) -> bool:
    """Return whether scores are classes, and labels are no classes or a matrix."""
    y = as_array(labels, "labels")
    axes = scores.ndim if hasattr(scores, "ndim") else as_array(scores, field).ndim
    is_matrix = y.ndim == axes + 1 and y.shape[1] > 1
    if not is_matrix and (y.ndim != axes or y.dtype.kind != "f"):
        return False
    return _are_classes(as_array(scores, field)) and (is_matrix or not _are_classes(y))


def _are_classes(values: NDArray[Any]) -> bool:
    if values.dtype.kind == "f":
        return bool(np.array_equal(values, np.rint(values), equal_nan=True))
    return values.dtype.kind in "biuUST" or isinstance(next(iter(values.flat), None), str)


def as_scores(values: Any, field: str, classes: Iterable[str] | None = None) -> NDArray[Any]:
    """Return `values` as an array of numbers, from columns or objects that hold numbers.

    Numbered columns of a data frame are in the order of their numbers, or of the `classes` if they
    have their names; see `frame_columns`.

    Objects are numbers, among them those of nullable columns, or lists of K numbers.

    Raises
    ------
    InputError: as `as_array`; also an object that is no number, which is named with its column, or
        a column of labels.

    Examples
    --------
    >>> as_scores(np.array([[1, 2.5]], dtype=object), "logits")
    array([[1. , 2.5]])
    """
    names, order = _ordered_columns(values, classes)
    for name in _LABEL_COLUMNS:
        if names is not None and name in names:
            accepted = "columns of scores only: leave out the labels"
            raise InputError(field, found=f"a column {name!r}", accepted=accepted)
    array = as_array(values, field)
    if order is not None and array.ndim == 2:
        array = array[:, order]
    if array.dtype != object:
        return array
    if array.ndim == 0:
        return array
    if array.ndim == 1 and len(array) and all(isinstance(row, _LISTS) for row in array):
        array = as_array(list(array), field)  # a column of lists
        if array.dtype.kind not in "iuf":
            array = array.astype(object)  # whose values are checked
    if array.dtype == object:
        # By type, because a table has millions of values.
        wrong = {kind for kind in set(map(type, array.flat)) if not _is_number(kind)}
        if wrong:
            raise _wrong_value(array, lambda value: type(value) in wrong, names, field)
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise _wrong_value(array, lambda value: abs(value) > _MAX, names, field) from None


def _wrong_value(
    objects: NDArray[Any],
    is_wrong: Callable[[Any], bool],
    names: tuple[str, ...] | None,
    field: str,
) -> InputError:
    """Return the error of the first object that is no number of float64."""
    position = next(at for at, value in np.ndenumerate(objects) if is_wrong(value))
    found = _text(objects[position])
    if names is not None and len(position) == 2:
        found += f" in column {names[position[1]]!r}"
        position = position[:1]
    place = field + "".join(f"[{index}]" for index in position)
    return InputError(place, found=found, accepted=f"a number, at most {_MAX:.2g}")


def _text(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # an integer of more digits than Python writes
        return "a larger number"


def _is_number(kind: type) -> bool:
    return issubclass(kind, Real | Decimal) and not issubclass(kind, bool)


def score_matrix(
    values: ArrayLike, input: str, field: str, classes: Iterable[str] | None = None
) -> NDArray[Any]:
    """Return `values` as an array; scores of two classes (N,) become two columns.

    Parameters
    ----------
    values: (N, K), or (N,) or (N, 1): the log-odds of class 1 (`decision_function`) if `input` is
        `logits`, its probability if `input` is `probabilities`.
    classes: their names, if they are known; see `frame_columns`.

    Examples
    --------
    >>> score_matrix([0.2, 0.9], "probabilities", "probabilities").round(1).tolist()
    [[0.8, 0.2], [0.1, 0.9]]
    """
    scores = as_scores(values, field, classes)
    is_column = scores.ndim > 0 and scores.shape[1:] in ((), (1,))
    return two_columns(scores, input) if is_column and scores.dtype.kind in "iuf" else scores


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
        if values is None:
            return None
        if self.positions is None:
            return as_array(values, field)
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


def one_of(logits: Any, probabilities: Any) -> tuple[Literal["logits", "probabilities"], Any]:
    """Return the kind of the scores that are given, and these; `InputError` for both or neither."""
    if (logits is None) == (probabilities is None):
        found = "neither" if logits is None else "both"
        raise InputError("logits, probabilities", found=found, accepted="exactly one of the two")
    return ("probabilities", probabilities) if logits is None else ("logits", logits)


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
