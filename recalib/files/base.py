"""The contract of a reader of validation data, for all formats.

Shapes: N rows, K classes. Logits (or probabilities: the caller says which) are (N, K), labels (N,).
One column, (N,) or (N, 1), is that of class 1 of 2: `recalib.core.arrays.two_columns`.
In multilabel data the K columns are independent labels, and `labels` are booleans (N, K).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import (
    check_labels,
    check_logits,
    check_probabilities,
    check_row_weights,
    refuse_first,
)
from recalib.core.label_arrays import check_label_matrix, check_label_scores
from recalib.core.masks import Mask
from recalib.errors import EmptyError, InputError, RecalibError, TooLargeError

Input = Literal["logits", "probabilities"]
Task = Literal["multiclass", "multilabel"]
Numbers = NDArray[Any]
#: Raw scores, labels and weights of the same rows.
Rows = tuple[Numbers, Numbers | None, Numbers | None]

#: One row must fit into memory, however many classes a header claims. A million classes are 46
#: times those of ImageNet-21k, and 8 MB a row in float64.
MAX_CLASSES = 1_000_000


@dataclass(frozen=True, slots=True)
class DataSelection:
    """What the caller says about the names in a file; nothing by default.

    Parameters
    ----------
    scores: the name of an array, of a column of lists, or of the column of class 1 of 2; or the
        names of one column a class, in the order of the classes, which labels may then have too.
    label: of the array or column of labels; of an npy file, the path of the npy file of labels.
    weights: of the array or column of sample weights.
    class_names: names of the classes, if they are known: columns and labels of a table may have
        them.
    separator: of the columns of a csv file; by default the first line tells.
    """

    scores: tuple[str, ...] | None = None
    label: str | None = None
    weights: str | None = None
    class_names: tuple[str, ...] | None = None
    separator: str | None = None

    @classmethod
    def of_classes(cls, names: Sequence[str] | None) -> Self:
        """Return the selection of a model's names, none if one is the number of another class."""
        known = tuple(names or ())
        numbers = {str(k): k for k in range(len(known))}
        is_clear = all(numbers.get(name.partition(".")[0], k) == k for k, name in enumerate(known))
        return cls(class_names=known if known and is_clear else None)


#: Nothing is selected.
NO_SELECTION = DataSelection()


@dataclass(frozen=True, eq=False, slots=True)
class Chunk:
    """Consecutive valid rows: `logits` (n, K), `labels` or None, and the index of the first.

    `logits` holds probabilities if the caller declared ``input="probabilities"``. The receiver owns
    the arrays and may write to them.
    """

    logits: NDArray[np.floating[Any]]
    #: (n,) of int64; (n, K) of booleans in multilabel data.
    labels: NDArray[Any] | None
    first_row: int
    #: (n,), if the file's rows have sample weights.
    weights: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Data:
    """All valid rows of a file: `logits` (N, K) in the file's dtype, `labels` or None."""

    logits: NDArray[np.floating[Any]]
    #: (N,) of int64; (N, K) of booleans in multilabel data.
    labels: NDArray[Any] | None
    #: (N,), if the selection names them.
    weights: NDArray[np.float64] | None = None


@dataclass(frozen=True, eq=False, slots=True)
class LabelledData(Data):
    """All valid rows of a file, with labels."""

    labels: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape and dtype from the header; `rows` is None if the header does not contain N."""

    rows: int | None
    classes: int
    dtype: np.dtype[Any]
    has_labels: bool
    has_weights: bool = False


class DataFile(ABC):
    """An open file of validation data, read in chunks of bounded memory.

    A subclass reads one format: `_open` parses and checks the header, `_read` yields raw rows. This
    class does the rest. A reader allocates nothing that a header claims before it has compared the
    claim with the size of the file.

    Nothing in the file is executed or unpickled. Each call of `chunks` reads the file again from
    its start. Not thread-safe; one pass at a time.

    Parameters
    ----------
    stream: a seekable binary file; `close` closes it only if `owned`.
    declared: the array to read.
    task: `multilabel` for labels (N, K).
    selection: names of the caller.

    Raises
    ------
    InputError: the file is not valid; raised here or while reading.
    """

    name: ClassVar[str]
    #: Content types of uploads, without parameters; the client sends the first.
    media_types: ClassVar[tuple[str, ...]]
    #: Suffixes of file names, in lower case.
    suffixes: ClassVar[tuple[str, ...]]
    #: Returns the weights of some rows, from the first of them and their number; set by the caller.
    row_weights: Callable[[int, int], NDArray[np.float64]] | None = None
    #: The rule of logits that are read as −inf; set by the caller.
    mask: Mask | None = None

    def __init__(
        self,
        stream: BinaryIO,
        declared: Input = "logits",
        *,
        task: Task = "multiclass",
        selection: DataSelection = NO_SELECTION,
        owned: bool = False,
    ) -> None:
        self._stream = stream
        self._declared: Input = declared
        self._task: Task = task
        self._selection = selection
        #: Which of 0 and −1, the labels of class 0 of 2, have been read.
        self._zeros: set[int] = set()
        self._owned = owned
        with translate_errors(self.name):
            layout = self._open()
        if layout.classes == 1 and task == "multiclass":
            layout = replace(layout, classes=2)
        self._layout = _check_layout(layout, declared)

    @abstractmethod
    def _open(self) -> Layout:
        """Parse and check the header; raise `InputError` if it is not valid."""

    @abstractmethod
    def _read(self, step: int) -> Iterator[Rows]:
        """Yield raw arrays from the first row on, preferably `step` rows at a time."""

    @property
    def rows(self) -> int | None:
        """N, or None for formats whose header does not contain it (CSV, Arrow)."""
        return self._layout.rows

    @property
    def first_row(self) -> int:
        """The index in the file of the first row that is read."""
        return 0

    @property
    def rows_of_file(self) -> int | None:
        """The number of all rows of the file, where `rows` is that of the rows that are read."""
        return self.rows

    @property
    def classes(self) -> int:
        """K."""
        return self._layout.classes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the chunks: the file's float dtype, or float64 for integers."""
        return self._layout.dtype

    @property
    def has_labels(self) -> bool:
        """Whether chunks carry labels."""
        return self._layout.has_labels

    @property
    def has_weights(self) -> bool:
        """Whether the file has weights that the selection names."""
        return self._layout.has_weights

    @property
    def is_multilabel(self) -> bool:
        """Whether labels are (N, K)."""
        return self._task == "multilabel"

    def chunks(self, max_bytes: int = 8 << 20) -> Iterator[Chunk]:
        """Yield all rows in order, at most `max_bytes` of logits at a time.

        A larger row is a separate chunk. Errors count rows from 0.
        """
        step = max(1, max_bytes // (self.classes * self.dtype.itemsize))
        row = 0
        with translate_errors(self.name):
            for logits, labels, weights in self._read(step):
                for start in range(0, len(logits), step):
                    part = slice(start, start + step)
                    y = None if labels is None else labels[part]
                    w = None if weights is None else weights[part]
                    chunk = self._check(logits[part], y, w, row)
                    if self.mask is not None:
                        chunk = replace(chunk, logits=self.mask.apply_to(chunk.logits))
                    if self.row_weights is not None:
                        weights = self.row_weights(row, len(chunk.logits))
                        chunk = replace(chunk, weights=weights)
                    row += len(chunk.logits)
                    yield chunk
        self._check_end(row)

    def close(self) -> None:
        """Close the stream if this object opened it."""
        if self._owned:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(
        self, values: Numbers, labels: Numbers | None, weights: Numbers | None, row: int
    ) -> Chunk:
        # Arrow returns read-only views; those are copied.
        logits = self._check_scores(np.require(values, requirements=["C", "W"]), row)
        if weights is not None:
            weights = check_row_weights(weights.reshape(-1), len(logits), "weights", row)
        if labels is not None:
            labels = self._check_labels(np.require(labels, requirements=["C", "W"]), logits, row)
        return Chunk(logits, labels, row, weights)

    def _check_labels(self, labels: Numbers, logits: Numbers, row: int) -> Numbers:
        if self.is_multilabel:
            # A file can have other bytes than 0 and 1 as booleans.
            numbers = labels.view(np.uint8) if labels.dtype == bool else labels
            return check_label_matrix(numbers, shape=logits.shape, first_row=row)
        if self.classes == 2:
            # Labels are 0 and 1 or −1 and 1, in the whole file.
            for zero in (0, -1):
                if -1 - zero in self._zeros:
                    refuse_first(labels == zero, labels, "labels", "0 and 1, or -1 and 1", row)
                self._zeros |= {zero} if (labels == zero).any() else set()
        return check_labels(labels, logits=logits, first_row=row)

    def _check_scores(self, values: Numbers, row: int) -> NDArray[np.floating[Any]]:
        classes, field = self.classes, self._declared
        if self.is_multilabel:
            return check_label_scores(values, input=field, classes=classes, first_row=row)
        check = check_logits if field == "logits" else check_probabilities
        return check(values, classes=classes, field=field, first_row=row)

    def _labels_shape(self, rows: int, classes: int) -> tuple[int, ...]:
        return (rows, classes) if self.is_multilabel else (rows,)

    def _check_end(self, row: int) -> None:
        if row == 0:
            raise EmptyError(self._declared, found="no rows", accepted="at least one row")
        if self.rows is not None and row != self.rows:
            raise InputError(
                self._declared, found=f"{row} rows", accepted=f"{self.rows}, as the header says"
            )


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Translate any exception that a library raises for a damaged file into `InputError`.

    Parsers of hostile bytes raise nearly every class (struct.error, RecursionError, zlib.error,
    ArrowInvalid, ...), so a list of classes would be incomplete. Only errors of the machine pass:
    an OSError with a number, except EINVAL, which a seek to a damaged offset raises.
    """
    try:
        yield
    except RecalibError:
        raise
    except MemoryError as error:
        raise TooLargeError(
            "data", found="more than fits into memory", accepted="less data, or smaller pieces"
        ) from error
    except Exception as error:
        if (system_error := _system_error(error)) is not None:
            raise system_error from None
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            "data",
            found=f"a file that cannot be read as {name} ({reason})",
            accepted=f"a complete, undamaged {name} file",
        ) from error


def _system_error(error: BaseException | None) -> OSError | None:
    # zipfile replaces an OSError by "not a zip file"; the context holds the OSError.
    while error is not None:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            return error
        error = error.__context__
    return None


def _check_layout(layout: Layout, declared: Input) -> Layout:
    if layout.rows == 0:
        raise EmptyError(declared, found="no rows", accepted="at least one row")
    if layout.classes < 2:
        raise InputError(declared, found=f"{layout.classes} class(es)", accepted="at least 2")
    if layout.classes > MAX_CLASSES:
        raise TooLargeError(
            declared, found=f"{layout.classes} classes", accepted=f"at most {MAX_CLASSES}"
        )
    return layout
