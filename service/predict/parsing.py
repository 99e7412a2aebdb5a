"""From the bytes of a calibrate request to an array, and from an array to an answer's bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import orjson
from numpy.lib import format as npy
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.errors import InputError
from service.predict.loaded import Loaded
from service.predict.schemas import CalibrateRequest

__all__ = ["decode_json", "decode_npy", "encode_json", "encode_npy"]

_decoder = msgspec.json.Decoder(CalibrateRequest)


def decode_json(
    body: bytes,
    input: Literal["logits", "probabilities"],
) -> NDArray[np.float32]:
    """Return the rows of `{"logits": [[...]]}` as float32; null becomes −inf, a masked class.

    Raises
    ------
    InputError: not JSON (NaN and Infinity are not), something that is no number, rows of
        different lengths, or another field than the one that `input` names.
    """
    try:
        request = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            _path(str(error)), found=str(error), accepted=f'{{"{input}": [[number, ...], ...]}}'
        ) from None
    rows = getattr(request, input)
    if rows is None:
        raise InputError(
            input, found="nothing", accepted=f'{{"{input}": [[...]]}}, as ?input={input} says'
        )
    if len(rows) == 0:
        raise InputError(input, found="no rows", accepted="at least one row")
    array = _array(rows, input)
    if b"null" in body:
        # JSON has no NaN: a NaN here was a null.
        array[np.isnan(array)] = -np.inf
    return array


def decode_npy(body: bytes, field: str) -> Floats:
    """Return the array in the bytes of a .npy file, without copying it.

    Raises
    ------
    InputError: not .npy, an object array (a pickle), or a header that does not fit the bytes.
    """
    file = io.BytesIO(body)
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception as error:  # NumPy promises nothing about what a broken header raises
        raise InputError("body", found=f"{error}", accepted="a .npy file") from None
    if dtype.kind not in "fiu":
        raise InputError(field, found=f"dtype {dtype}", accepted="numbers; never a pickle")
    size, rest = math.prod(shape) * dtype.itemsize, len(body) - file.tell()
    if size != rest:
        raise InputError(
            "body", found=f"{rest} bytes of data", accepted=f"{size}, as the header's shape says"
        )
    flat = np.frombuffer(body, dtype, offset=file.tell()).astype(
        dtype.newbyteorder("="), copy=False
    )
    array: Floats = flat.reshape(shape, order="F" if fortran else "C")
    return array


def encode_json(probabilities: Floats, loaded: Loaded) -> bytes:
    """Return the answer as JSON, each number with as many digits as float32 has."""
    answer = {
        "probabilities": probabilities,
        "calibrator": {"version": loaded.version, "map": loaded.calibrator.card.map},
    }
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def encode_npy(probabilities: Floats) -> bytes:
    """Return the probabilities as the bytes of a .npy file."""
    file = io.BytesIO()
    npy.write_array(file, probabilities, allow_pickle=False)
    return file.getvalue()


def _array(rows: Sequence[Sequence[Any]], field: str) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):
            array = np.array(rows, dtype=np.float32)
    except ValueError:  # rows of different lengths: find the first
        lengths = [len(row) for row in rows]
        odd = next(i for i, length in enumerate(lengths) if length != lengths[0])
        raise InputError(
            f"{field}[{odd}]", found=f"{lengths[odd]} values", accepted=f"{lengths[0]}, as in row 0"
        ) from None
    return array


def _path(message: str) -> str:
    """Return the field that a msgspec error names, as `logits[0][2]`."""
    _, _, path = message.partition("at `$")
    return path.strip("`.").strip() or "body"
