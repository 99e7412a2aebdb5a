"""`.json`: an object with `logits` (N, K) and `labels` (N,) or (N, K), or others by name.

Null is a masked class. Numbers (N,) are scores of class 1 of 2.

For small data. The size is limited, because the whole document is parsed in memory. The other
formats are a tenth as large and have no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, cast

import msgspec
import numpy as np

from recalib.core.arrays import Floats
from recalib.errors import EmptyError, InputError, TooLargeError
from recalib.files.base import DataFile, Layout, Numbers, Rows
from recalib.files.column_names import array_names
from recalib.files.raw_arrays import size_of

#: As Python objects, numbers of 17 digits take about twice the space of their text.
_MAX_DOCUMENT_BYTES = 64 << 20
#: Memory of a parsed number (`1,`, 16 times its text) and of a parsed list (`[`, 64 times).
_NUMBER_BYTES, _LIST_BYTES = 32, 64
#: Limit for the parsed document; parsing takes at most about three seconds.
_MAX_PARSED_BYTES = 128 << 20
#: Shorter documents are not checked for their parsed size.
_SHORT_BYTES = 1 << 20
#: Up to this many numbers, Python is faster than NumPy; float32 holds numbers below this.
_MAX_PLAIN_COUNT, _MAX_PLAIN_VALUE = 64, 3e38


_document = msgspec.json.Decoder(dict[str, msgspec.Raw])
#: Of members. Only a logit may be null; a label or weight may be a row of one number.
_rows = msgspec.json.Decoder(list[list[float | None] | float])
_numbers = msgspec.json.Decoder(list[list[float] | float])
_labels = msgspec.json.Decoder(list[list[float | bool] | float | bool])


class JsonFile(DataFile):
    """A JSON document. Other members are ignored."""

    name: ClassVar[str] = "json"
    media_types: ClassVar[tuple[str, ...]] = ("application/json",)
    suffixes: ClassVar[tuple[str, ...]] = (".json",)

    def _open(self) -> Layout:
        size = size_of(self._stream)
        if size > _MAX_DOCUMENT_BYTES:
            raise TooLargeError(
                "data",
                found=f"{size} bytes of JSON",
                accepted=f"{_MAX_DOCUMENT_BYTES}; or another format",
            )
        self._stream.seek(0)
        accepted = "an object with logits and labels"
        document = decode_document(_document, self._stream.read(), accepted, "data")
        members = {name: bytes(member) for name, member in document.items()}
        members = {name: member for name, member in members.items() if member != b"null"}
        names = array_names([*members], self._declared, self._selection)
        may_be_null = self._declared == "logits" and not self.is_multilabel
        decoder = _rows if may_be_null else _numbers
        values = decode(decoder, members[str(names.values)], "rows of numbers", self._declared)
        values = number_rows(values, self._declared)
        labels = self._member(members, names.labels, _labels, "labels", len(values))
        weights = self._member(members, names.weights, _numbers, "weights", len(values))
        scores = array_of(values, self._declared, np.float64)
        self._arrays: Rows = (scores, labels, weights)
        has_labels, has_weights = labels is not None, weights is not None
        rows, classes = scores.shape
        return Layout(rows, classes, scores.dtype, has_labels, has_weights)

    def _member(
        self,
        members: dict[str, bytes],
        name: str | None,
        decoder: msgspec.json.Decoder[Any],
        field: str,
        rows: int,
    ) -> Numbers | None:
        """Return labels or weights."""
        if name is None:
            return None
        values = decode(decoder, members[name], "numbers", field)
        if len(values) != rows:
            found = f"{len(values)} {field}"
            raise InputError(field, found=found, accepted=f"{rows}, one a row")
        if not values:  # the scores have no rows either
            return None
        array = array_of(number_rows(values, field), field, np.float64)
        return array if self.is_multilabel and field == "labels" else _one_column(array, field)

    def _read(self, step: int) -> Iterator[Rows]:
        yield self._arrays


def _one_column(array: Floats, field: str) -> Floats:
    if array.shape[1] != 1:
        accepted = "a number for each row; (N, K) is of the task multilabel"
        raise InputError(field, found=f"shape {array.shape}", accepted=accepted)
    return array[:, 0]


def decode_document(
    decoder: msgspec.json.Decoder[Any], body: bytes, accepted: str, field: str = "body"
) -> Any:
    """Decode like `decode`; `TooLargeError` if the objects may take far more memory."""
    if len(body) > _SHORT_BYTES:
        _check_parsed_size(body, field)
    return decode(decoder, body, accepted, field)


def decode(
    decoder: msgspec.json.Decoder[Any], body: bytes, accepted: str, field: str = "body"
) -> Any:
    """Decode a document; raise `InputError` with the path of the invalid value, or with `field`.

    NaN and Infinity are not JSON; strings and booleans are not numbers.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        # A message of msgspec: "Expected `float | null`, got `str` - at `$.logits[0][2]`".
        message, _, path = str(error).partition(" - at `$")
        found = message.rpartition(", got ")[2].strip("`")
        place = path.strip("`.")
        if place.startswith("[") and field != "body":  # an array inside a document
            place = field + place
        raise InputError(place or field, found=found, accepted=accepted) from None


def number_rows(values: list[Any], field: str) -> list[Any]:
    """Return rows unchanged; numbers (N,), scores of class 1 of 2, become rows of one number.

    Raises
    ------
    InputError: rows and numbers.
    """
    is_row = [isinstance(value, list) for value in values]
    if all(is_row):
        return values
    if any(is_row):
        index = is_row.index(not is_row[0])
        found = "a row" if is_row[index] else "a number"
        accepted = "a row of numbers, as in row 0" if is_row[0] else "a number"
        raise InputError(f"{field}[{index}]", found=found, accepted=accepted)
    return [[value] for value in values]


def array_of(
    rows: Sequence[Sequence[float | None]], field: str, dtype: type[np.floating[Any]]
) -> Floats:
    """Convert rows of numbers to an array (N, K); None becomes −inf, a masked class.

    Raises
    ------
    EmptyError: no rows.
    InputError: rows of different lengths.
    """
    if len(rows) == 0:
        raise EmptyError(field, found="no rows", accepted="at least one row")
    if are_plain(rows):
        return np.array(rows, dtype)
    try:
        with np.errstate(over="ignore"):  # a later check finds +inf and names its place
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


def _check_parsed_size(body: bytes, field: str) -> None:
    size = _NUMBER_BYTES * body.count(b",") + _LIST_BYTES * body.count(b"[")
    if size > _MAX_PARSED_BYTES:
        raise TooLargeError(
            field,
            found=f"{len(body)} bytes of JSON that take up to {size >> 20} MiB",
            accepted=f"at most {_MAX_PARSED_BYTES >> 20} MiB; or another format",
        )


def are_plain(rows: Sequence[Sequence[float | None]]) -> bool:
    """Return whether these are at most 64 numbers in rows of equal length that float32 can hold.

    For so few numbers, Python is faster than NumPy.
    """
    width = len(rows[0]) if rows else 0
    if not 0 < len(rows) * width <= _MAX_PLAIN_COUNT:
        return False
    numbers = cast("Sequence[Sequence[float]]", rows)
    try:
        for row in numbers:
            if len(row) != width or min(row) <= -_MAX_PLAIN_VALUE or max(row) >= _MAX_PLAIN_VALUE:
                return False
    except TypeError:  # None cannot be compared
        return False
    return True
