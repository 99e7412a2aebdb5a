"""Large JSON arrays of numbers, parsed and written in pieces.

Parsers and encoders keep the interpreter lock until they return, also on a thread: the event loop
would wait for all of an array. Between two pieces it runs. Only one piece at a time exists as
Python objects, which take up to 40 times the memory of their text.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import orjson

from recalib.core.arrays import Floats
from recalib.errors import InputError, TooLargeError
from recalib.files.base import MAX_CLASSES
from recalib.files.json import array_of, decode
from service.serving import json_numbers

#: Text of one piece. The slowest, rows of one number, takes 4 ms.
PIECE_BYTES = 65_536
#: Numbers of one piece that is written.
_PIECE_NUMBERS = 65_536

_Type = type[np.floating[Any]]

_flat = msgspec.json.Decoder(list[float | None])
_rows = msgspec.json.Decoder(list[list[float | None]])
_comma = re.compile(rb"\s*,?\s*")


def row_array(text: bytes, field: str, dtype: _Type, max_rows: int, accepted: str) -> Floats:
    """Return the array (N, K) of `[[number, ...], ...]`; null becomes −inf, a masked class.

    Numbers `[number, ...]`, scores of class 1 of 2, become an array (N, 1).

    Parameters
    ----------
    text: valid JSON without surrounding space.
    field: its name in errors.

    Raises
    ------
    InputError: a value that is not a number, no rows, or rows of different lengths.
    TooLargeError: more than `max_rows` rows.
    """
    if text[1:].lstrip()[:1] not in (b"[", b"]"):
        return flat_array(text, field, dtype, max_rows, accepted).reshape(-1, 1)
    arrays: list[Floats] = []
    count = 0
    for piece in _pieces(text, _end_of_rows):
        classes = arrays[0].shape[1] if arrays else None
        if len(piece) > PIECE_BYTES + 2:  # a single row
            text_of_row = piece[1:-1].strip()
            row = flat_array(text_of_row, f"{field}[{count}]", dtype, MAX_CLASSES, accepted)
            _check_lengths([row], classes, field, count)
            array = row.reshape(1, -1)
        else:
            array = _small_rows(piece, field, dtype, count, classes, accepted)
        count += len(array)
        if count > max_rows:
            raise TooLargeError(
                field, found=f"over {max_rows} rows", accepted=f"at most {max_rows}"
            )
        arrays.append(array)
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def flat_array(text: bytes, field: str, dtype: _Type, max_count: int, accepted: str) -> Floats:
    """Return the array (N,) of `[number, ...]`, as `row_array` does; N is at most `max_count`."""
    arrays: list[Floats] = []
    count = 0
    for piece in _pieces(text, _end_of_numbers):
        if len(piece) > 2 * PIECE_BYTES and piece is not text:
            raise InputError(field, found=f"a value of {len(piece)} bytes", accepted=accepted)
        array = json_numbers.flat_in(piece) if len(piece) >= json_numbers.LONG else None
        if array is None:
            with _later_places(field, count):
                array = array_of([decode(_flat, piece, accepted, field)], field, dtype)[0]
        count += len(array)
        if count > max_count:
            found, accepted = f"over {max_count} numbers", f"at most {max_count}"
            raise TooLargeError(field, found=found, accepted=accepted)
        with np.errstate(over="ignore"):  # a later check reports +inf with its position
            arrays.append(array.astype(dtype, copy=False))
    return np.concatenate(arrays)


def _small_rows(
    piece: bytes, field: str, dtype: _Type, count: int, classes: int | None, accepted: str
) -> Floats:
    """Return the rows of a piece.

    Parameters
    ----------
    count: the number of rows before it.
    classes: the length of these rows, None if there are none.
    """
    array = json_numbers.rows_in(piece) if len(piece) >= json_numbers.LONG else None
    if array is None:
        with _later_places(field, count):
            rows = decode(_rows, piece, accepted, field)
        _check_lengths(rows, classes, field, count)
        with _later_places(field, count):
            return array_of(rows, field, dtype)
    _check_lengths(array[:1], classes, field, count)
    with np.errstate(over="ignore"):
        return array.astype(dtype, copy=False)


def _check_lengths(rows: Iterable[Any], classes: int | None, field: str, count: int) -> None:
    if classes is None:
        return
    for index, row in enumerate(rows):
        if len(row) != classes:
            accepted = f"{classes}, as in row 0"
            raise InputError(
                f"{field}[{count + index}]", found=f"{len(row)} values", accepted=accepted
            )


@contextlib.contextmanager
def _later_places(field: str, count: int) -> Iterator[None]:
    """Add the number of elements of earlier pieces to the index in the field of an error."""
    try:
        yield
    except InputError as error:
        index = re.compile(rf"(?<=^{re.escape(field)}\[)\d+")
        place = index.sub(lambda match: str(int(match[0]) + count), error.field)
        raise InputError(place, found=error.found, accepted=error.accepted) from None


def _pieces(text: bytes, end_of: Callable[[bytes, int, int], int]) -> Iterator[bytes]:
    """Yield arrays, in JSON, that together have the elements of an array.

    Parameters
    ----------
    end_of: returns where a piece ends, given the text, its start and the end of the text.
    """
    last = len(text) - 1
    if len(text) <= PIECE_BYTES or not text.startswith(b"["):
        yield text
        return
    start = 1
    while start < last:
        stop = end_of(text, start, last)
        yield b"[" + text[start:stop] + b"]"
        match = _comma.match(text, stop, last)
        start = stop if match is None else match.end()


def _end_of_rows(text: bytes, start: int, last: int) -> int:
    """Return the end of the last row that fits into a piece, or of one longer row."""
    stop = text.rfind(b"]", start, min(start + PIECE_BYTES, last))
    if stop < 0:
        stop = text.find(b"]", start, last)
    return last if stop < 0 else stop + 1


def _end_of_numbers(text: bytes, start: int, last: int) -> int:
    stop = text.find(b",", start + PIECE_BYTES, last)
    return last if stop < 0 else stop


def fragment(array: Any, convert: Callable[[Any], Any] = lambda part: part) -> Any:
    """Return what orjson writes as a list of the rows of an array.

    Parameters
    ----------
    convert: returns what is written of a part of the array; by default its numbers.
    """
    if array.size <= _PIECE_NUMBERS:
        return convert(array)
    step = max(1, _PIECE_NUMBERS * len(array) // array.size)
    parts = (
        orjson.dumps(convert(array[at : at + step]), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        for at in range(0, len(array), step)
    )
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")
