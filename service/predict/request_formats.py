"""Decoding of calibrate requests: JSON, .npy and Arrow."""

from __future__ import annotations

import io
import math
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.lib import format as npy

from recalib.core.arrays import Floats
from recalib.errors import InputError, TooLargeError
from recalib.files import DataSelection, open_data
from recalib.files.json import are_plain, array_of, decode, number_rows
from service.predict.schemas import CalibrateRequest
from service.serving import json_numbers as numbers
from service.serving.datatypes import MAX_DIMENSION
from service.serving.json_pieces import PIECE_BYTES, row_array

Input = Literal["logits", "probabilities"]

JSON, NPY = "application/json", "application/x-npy"
ARROW = "application/vnd.apache.arrow.stream"
NPZ = "application/x-npz"
#: Media types of requests.
REQUEST_TYPES = (JSON, NPY, ARROW)


class _LargeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A `CalibrateRequest` whose rows are not parsed yet."""

    logits: msgspec.Raw = msgspec.Raw(b"null")
    probabilities: msgspec.Raw = msgspec.Raw(b"null")


#: Larger bodies, and those of over 64 KiB with more rows, are parsed in pieces, which takes longer.
_MAX_WHOLE_BYTES, _MAX_WHOLE_ROWS = 2**20, 4096
_decoder = msgspec.json.Decoder(CalibrateRequest)
_large_decoder = msgspec.json.Decoder(_LargeRequest)


def decode_json(
    body: bytes, input: Input, max_rows: int = MAX_DIMENSION
) -> Floats | list[list[float]]:
    """Return the rows of `{"logits": [[...]]}` as float32; null becomes −inf, a masked class.

    A few rows are returned as lists if they need no check: float32 holds every number, and all rows
    are equally long. Rows of several requests can then be joined in one array.

    Raises
    ------
    InputError: not JSON (NaN and Infinity are not JSON), a value that is not a number, rows of
        different lengths, or a field other than `input`.
    TooLargeError: more than `max_rows` rows, in a body that is parsed in pieces.
    """
    accepted = f'{{"{input}": [[number, ...], ...]}}'
    if len(body) > PIECE_BYTES and (
        len(body) > _MAX_WHOLE_BYTES or body.count(b"[") > _MAX_WHOLE_ROWS
    ):
        text = bytes(getattr(decode(_large_decoder, body, accepted), input))
        _check_rows(None if text == b"null" else text, input)
        return row_array(text, input, np.float32, max_rows, accepted)
    if len(body) >= numbers.LONG:
        array = numbers.rows_under(input, body)
        if array is not None:
            with np.errstate(over="ignore"):  # a later check reports +inf with its position
                return array.astype(np.float32)
    rows = getattr(decode(_decoder, body, accepted), input)
    _check_rows(rows, input)
    rows = number_rows(rows, input)
    return rows if are_plain(rows) else array_of(rows, input, np.float32)


def _check_rows(rows: object, input: Input) -> None:
    if rows is None:
        raise InputError(
            input, found="nothing", accepted=f'{{"{input}": [[...]]}}, as ?input={input} says'
        )


def decode_npy(body: bytes, field: str) -> Floats:
    """Return the array in the bytes of a .npy file, without a copy.

    Raises
    ------
    InputError: not .npy, an object array (a pickle), or a header that does not match the size.
    """
    length = 2 if body[6:7] == b"\x01" else 4  # bytes of the length field, in format 1 and later
    start = 8 + length + int.from_bytes(body[8 : 8 + length], "little")
    shape, order, dtype, size = _parse_header(body[:start], field)
    if size != len(body) - start:
        found = f"{len(body) - start} bytes of data"
        raise InputError("body", found=found, accepted=f"{size}, as the header's shape says")
    array: Floats = np.frombuffer(body, dtype, offset=start).reshape(shape, order=order)
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


# Cached: reading a header takes as long as calibrating 20,000 numbers, and few differ.
@lru_cache(maxsize=64)
def _parse_header(
    head: bytes, field: str
) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any], int]:
    """Return shape, order, dtype and size in bytes from the header of a .npy file."""
    try:
        file = io.BytesIO(head)
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        lengths, fortran, dtype = read(file)
        # NumPy accepts True as a length in a header, but not in a shape.
        shape = tuple(int(length) for length in lengths)
    except Exception as error:  # NumPy does not document its errors for a broken header
        raise InputError(
            "body", found=f"{error}"[:80] or "no header", accepted="a .npy file"
        ) from None
    if dtype.kind not in "fiu":
        raise InputError(field, found=f"dtype {dtype}", accepted="numbers; never a pickle")
    if len(shape) not in (1, 2) or not all(0 < length <= MAX_DIMENSION for length in shape):
        found = "no rows" if shape[:1] == (0,) else f"shape {shape}"[:80]
        raise InputError(
            field, found=found, accepted=f"shape (N, K), each from 1 to {MAX_DIMENSION}"
        )
    return shape, "F" if fortran else "C", dtype, math.prod(shape) * dtype.itemsize


def decode_arrow(
    body: bytes, input: Input, max_bytes: int, class_names: tuple[str, ...] | None = None
) -> Floats:
    """Return the rows of an Arrow stream or file: a column of lists, or one column per class.

    Parameters
    ----------
    input: the column to read; a column of labels is ignored.
    class_names: names of the classes, which columns may have in any order.
    max_bytes: of decoded numbers: compressed batches may hold far more than the body.

    Raises
    ------
    InputError: raised by `recalib.files.open_data` and its chunks.
    TooLargeError: more than `max_bytes`.
    """
    try:
        selection = DataSelection.of_classes(class_names)
        stream = io.BytesIO(body)
        with open_data(stream, format="arrow", input=input, selection=selection) as file:
            chunks, size = [], 0
            for chunk in file.chunks():
                size += chunk.logits.nbytes
                if size > max_bytes:
                    raise TooLargeError(
                        "body",
                        found=f"over {max_bytes} bytes of numbers",
                        accepted=f"at most {max_bytes} bytes",
                    )
                chunks.append(chunk.logits)
    except InputError as error:
        if error.field != "data":
            raise
        # The reader names its input "data"; here it is the body.
        raise type(error)("body", found=error.found, accepted=error.accepted) from None
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
