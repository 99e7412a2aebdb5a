"""What a reader of validation data promises, whatever the format.

Shapes: N rows, K classes. Logits (or probabilities: the caller says which) are (N, K), labels (N,).
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import check_labels, check_logits, check_probabilities
from recalib.errors import InputError, RecalibError, TooLargeError

__all__ = [
    "MAX_CLASSES",
    "Chunk",
    "Data",
    "DataFile",
    "Input",
    "LabelledData",
    "Layout",
    "Numbers",
    "readable",
]

Input = Literal["logits", "probabilities"]
Numbers = NDArray[Any]

#: One row must fit into memory whatever a header claims. A million classes is fifty times
#: ImageNet-21k, and 8 MB a row in float64.
MAX_CLASSES = 1_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Chunk:
    """Consecutive rows, checked: `logits` (n, K), `labels` (n,) or None, the first row's number.

    `logits` holds what the caller declared, so probabilities where that was
    ``input="probabilities"``. The arrays are the receiver's own and may be written to.
    """

    logits: NDArray[np.floating[Any]]
    labels: NDArray[np.int64] | None
    first_row: int


@dataclass(frozen=True, eq=False, slots=True)
class Data:
    """A whole file, checked: `logits` (N, K) in the file's dtype, `labels` (N,) or None."""

    logits: NDArray[np.floating[Any]]
    labels: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False, slots=True)
class LabelledData(Data):
    """A whole file with labels (N,)."""

    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """What opening a file tells: `rows` is None where only reading to the end can tell."""

    rows: int | None
    classes: int
    dtype: np.dtype[Any]
    has_labels: bool


class DataFile(ABC):
    """One open file of validation data, read in chunks of bounded memory.

    A member of the family reads one format: `_open` parses and checks the header, `_read` yields
    raw rows, and everything else is done here. Nothing that a header claims is allocated before
    the file has been seen to hold it.

    What is in the file is never executed and never unpickled. The stream must be seekable and
    is read from its beginning; `chunks` may be called again, for one more pass. One thread, one
    pass at a time.

    Parameters
    ----------
    stream: a seekable binary file, closed by `close` only where `owned`.
    declared: which array the caller says it wants.

    Raises
    ------
    InputError: here or while reading: anything that is wrong with the file.
    """

    name: ClassVar[str]

    def __init__(self, stream: BinaryIO, declared: Input = "logits", *, owned: bool = False):
        self._stream = stream
        self._declared: Input = declared
        self._owned = owned
        with readable(self.name):
            self._layout = _checked_layout(self._open(), declared)

    @abstractmethod
    def _open(self) -> Layout:
        """Parse the header; raise `InputError` for what can be seen from it."""

    @abstractmethod
    def _read(self, step: int) -> Iterator[tuple[Numbers, Numbers | None]]:
        """Yield raw logits with their raw labels from the first row on, preferably `step` rows."""

    @property
    def rows(self) -> int | None:
        """N, or None where only reading to the end can tell (CSV, Arrow)."""
        return self._layout.rows

    @property
    def classes(self) -> int:
        """K."""
        return self._layout.classes

    @property
    def dtype(self) -> np.dtype[Any]:
        """What chunks come in: the file's float dtype, or float64 where it holds integers."""
        return self._layout.dtype

    @property
    def has_labels(self) -> bool:
        """Whether chunks carry labels."""
        return self._layout.has_labels

    def chunks(self, max_bytes: int = 8 << 20) -> Iterator[Chunk]:
        """Yield the rows from the first to the last, at most `max_bytes` of logits at a time.

        A row that is larger comes alone. Rows are numbered from 0 in errors.
        """
        step = max(1, max_bytes // (self.classes * self.dtype.itemsize))
        row = 0
        with readable(self.name):
            for logits, labels in self._read(step):
                for start in range(0, len(logits), step):
                    stop = start + step
                    part = None if labels is None else labels[start:stop]
                    chunk = self._checked(logits[start:stop], part, row)
                    row += len(chunk.logits)
                    yield chunk
        self._check_end(row)

    def close(self) -> None:
        """Close the stream if this object opened it."""
        if self._owned:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _checked(self, values: Numbers, labels: Numbers | None, row: int) -> Chunk:
        check = check_logits if self._declared == "logits" else check_probabilities
        # Arrow hands out views of memory that must not be written to; those are copied.
        own = np.require(values, requirements=["C", "W"])
        logits = check(own, classes=self.classes, field=self._declared, first_row=row)
        if labels is None:
            return Chunk(logits, None, row)
        own_labels = np.require(labels, requirements=["C", "W"])
        return Chunk(logits, check_labels(own_labels, logits=logits, first_row=row), row)

    def _check_end(self, row: int) -> None:
        if row == 0:
            raise InputError(self._declared, found="no rows", accepted="at least one row")
        if self.rows is not None and row != self.rows:
            raise InputError(
                self._declared, found=f"{row} rows", accepted=f"{self.rows}, as the header says"
            )


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn whatever a library says about a damaged file into one `InputError`.

    Parsers of hostile bytes raise nearly everything (struct.error, RecursionError, zlib.error,
    ArrowInvalid, ...), so that any list of classes would be incomplete. Only an error of the
    machine itself, an OSError with a number, passes; EINVAL is what a seek to a position that
    a damaged header made up ends in.
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
        if (machine := _machine_error(error)) is not None:
            raise machine from None
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            "data",
            found=f"a file that cannot be read as {name} ({reason})",
            accepted=f"a complete, undamaged {name} file",
        ) from error


def _machine_error(error: BaseException | None) -> OSError | None:
    # zipfile answers an OSError with "not a zip file"; the cause is what it was handling then.
    while error is not None:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            return error
        error = error.__context__
    return None


def _checked_layout(layout: Layout, declared: Input) -> Layout:
    if layout.rows == 0:
        raise InputError(declared, found="no rows", accepted="at least one row")
    if layout.classes < 2:
        raise InputError(declared, found=f"{layout.classes} class(es)", accepted="at least 2")
    if layout.classes > MAX_CLASSES:
        raise TooLargeError(
            declared, found=f"{layout.classes} classes", accepted=f"at most {MAX_CLASSES}"
        )
    return layout
