"""From the bytes of a calibrate request to an array, and from an array to an answer's bytes."""

from __future__ import annotations

import io
import math
from typing import Literal

import msgspec
import numpy as np
import orjson
from numpy.lib import format as npy

from recalib.arrays import Floats
from recalib.errors import InputError
from recalib.files.json import array_of, decoded
from service.predict.loaded import Loaded
from service.predict.schemas import CalibrateRequest

__all__ = ["decode_json", "decode_npy", "encode_json", "encode_npy"]

_decoder = msgspec.json.Decoder(CalibrateRequest)


def decode_json(
    body: bytes,
    input: Literal["logits", "probabilities"],
) -> Floats:
    """Return the rows of `{"logits": [[...]]}` as float32; null becomes −inf, a masked class.

    Raises
    ------
    InputError: not JSON (NaN and Infinity are not), something that is no number, rows of
        different lengths, or another field than the one that `input` names.
    """
    request = decoded(_decoder, body, f'{{"{input}": [[number, ...], ...]}}')
    rows = getattr(request, input)
    if rows is None:
        raise InputError(
            input, found="nothing", accepted=f'{{"{input}": [[...]]}}, as ?input={input} says'
        )
    return array_of(rows, input, np.float32)


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
