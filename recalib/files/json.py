"""`.json`: an object with `logits` (N, K) and `labels` (N,); null is a masked class.

For people and small data: the whole document is in memory while it is read, so its size is
limited. The other formats are a tenth as large and have no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import msgspec
import numpy as np

from recalib.arrays import Floats
from recalib.errors import InputError, TooLargeError
from recalib.files.base import DataFile, Layout, Numbers
from recalib.files.column_names import array_names
from recalib.files.raw_arrays import size_of

__all__ = ["JsonFile", "are_plain", "array_of", "decoded"]

#: Numbers of 17 digits take about twice the space of their text as Python objects.
_LARGEST = 64 << 20
#: `1,` is a float and its place in a list, and `[` a list: 16 and 64 times their text.
_NUMBER_BYTES, _LIST_BYTES = 32, 64
#: What the largest file of such numbers takes; three seconds of making lists, at most.
_MOST_BYTES = 128 << 20
#: Too little text to become much.
_SHORT = 1 << 20
#: Numbers up to which plain Python is faster than NumPy, and what each float can hold.
_FEW, _LARGE = 64, 3e38


class _Document(msgspec.Struct):
    logits: list[list[float | None]] | None = None
    probabilities: list[list[float]] | None = None
    labels: list[float] | None = None


_decoder = msgspec.json.Decoder(_Document)


class JsonFile(DataFile):
    """A JSON document; other members than ours are ignored."""

    name: ClassVar[str] = "json"

    def _open(self) -> Layout:
        size = size_of(self._stream)
        if size > _LARGEST:
            raise TooLargeError(
                "data", found=f"{size} bytes of JSON", accepted=f"{_LARGEST}; or another format"
            )
        self._stream.seek(0)
        document = decoded(
            _decoder, self._stream.read(), "an object with logits and labels", "data"
        )
        given = [name for name in document.__struct_fields__ if getattr(document, name) is not None]
        array_names(given, self._declared)
        self._logits = array_of(getattr(document, self._declared), self._declared, np.float64)
        rows, classes = self._logits.shape
        self._labels = None
        if document.labels is not None:
            self._labels = np.array(document.labels, np.float64)
            if len(self._labels) != rows:
                found = f"{len(self._labels)} labels"
                raise InputError("labels", found=found, accepted=f"{rows}, one a row")
        return Layout(rows, classes, self._logits.dtype, has_labels=self._labels is not None)

    def _read(self, step: int) -> Iterator[tuple[Numbers, Numbers | None]]:
        yield self._logits, self._labels


def decoded(
    decoder: msgspec.json.Decoder[Any], body: bytes, accepted: str, field: str = "body"
) -> Any:
    """Return the document; `InputError` with the path of what is wrong with it, else `field`.

    NaN and Infinity are not JSON, and text and booleans are no numbers. `TooLargeError` where it
    could become far more memory than text.
    """
    if len(body) > _SHORT:
        _refuse_large(body, field)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # What msgspec says: "Expected `float | null`, got `str` - at `$.logits[0][2]`".
        what, _, path = str(error).partition(" - at `$")
        found = what.rpartition(", got ")[2].strip("`")
        place = path.strip("`.")
        if place.startswith("[") and field != "body":  # an array of its own, inside a document
            place = field + place
        raise InputError(place or field, found=found, accepted=accepted) from None


def array_of(
    rows: Sequence[Sequence[float | None]], field: str, dtype: type[np.floating[Any]]
) -> Floats:
    """Return rows of numbers as an array (N, K); None becomes −inf, a masked class.

    Raises
    ------
    InputError: no rows, or rows of different lengths.
    """
    if len(rows) == 0:
        raise InputError(field, found="no rows", accepted="at least one row")
    if are_plain(rows):
        return np.array(rows, dtype)
    try:
        with np.errstate(over="ignore"):  # the check for +inf comes later, and names its place
            array = np.array(rows, dtype=dtype)
    except ValueError:
        lengths = [len(row) for row in rows]
        odd = next(i for i, length in enumerate(lengths) if length != lengths[0])
        raise InputError(
            f"{field}[{odd}]", found=f"{lengths[odd]} values", accepted=f"{lengths[0]}, as in row 0"
        ) from None
    masked = np.isnan(array)  # JSON has no NaN: a NaN here was a None
    if masked.any():
        array[masked] = -np.inf
    return array


def _refuse_large(body: bytes, field: str) -> None:
    size = _NUMBER_BYTES * body.count(b",") + _LIST_BYTES * body.count(b"[")
    if size > _MOST_BYTES:
        raise TooLargeError(
            field,
            found=f"{len(body)} bytes of JSON that take up to {size >> 20} MiB",
            accepted=f"at most {_MOST_BYTES >> 20} MiB; or another format",
        )


def are_plain(rows: Sequence[Sequence[float | None]]) -> bool:
    """Return whether these are few numbers, as many in each row, that float32 can hold.

    Of few, asking them one by one is faster than asking NumPy.
    """
    width = len(rows[0]) if rows else 0
    if not 0 < len(rows) * width <= _FEW:
        return False
    numbers = cast("Sequence[Sequence[float]]", rows)
    try:
        for row in numbers:
            if len(row) != width or min(row) <= -_LARGE or max(row) >= _LARGE:
                return False
    except TypeError:  # None has no order
        return False
    return True
