"""Conversions between arrays and `Matrix` messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recalib.core.arrays import Floats
from recalib.errors import InputError
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value
from service.serving.datatypes import DATATYPES, from_bytes

#: Numbers that are converted at once; they take 2 ms.
_PIECE = 65_536


def matrix_of(values: Floats, in_bytes: bool) -> pb.Matrix:
    """Return the message with values (N, K) as float32: little-endian bytes, or numbers."""
    rows, columns = values.shape
    flat = np.ascontiguousarray(values, np.dtype("<f4")).reshape(-1)
    if in_bytes:
        return pb.Matrix(rows=rows, classes=columns, raw=flat.tobytes())
    matrix = pb.Matrix(rows=rows, classes=columns)
    extend(matrix.values, flat)
    return matrix


def array_of(matrix: pb.Matrix) -> Floats:
    """Return the values (N, K) of a message; `InputError` where they do not fill it."""
    rows, classes = matrix.rows, matrix.classes
    if min(rows, classes) < 1:
        raise InputError(
            "matrix", found=f"rows {rows}, classes {classes}", accepted="both at least 1"
        )
    if bool(matrix.raw) == bool(matrix.values):
        found = "both" if matrix.raw else "nothing"
        raise InputError("matrix", found=found, accepted="either raw or values")
    if not matrix.raw:
        _check_size("matrix.values", len(matrix.values), rows * classes, "numbers")
        return numbers_of(matrix.values, np.float32).reshape(rows, classes)
    datatype = enum_value("matrix.datatype", pb.Datatype.DESCRIPTOR, matrix.datatype).upper()
    expected = rows * classes * DATATYPES[datatype].itemsize
    _check_size("matrix.raw", len(matrix.raw), expected, "bytes")
    return from_bytes(matrix.raw, datatype).reshape(rows, classes)


def numbers_of(values: Sequence[float], dtype: Any) -> Floats:
    """Return a repeated field as an array (N,).

    In pieces: a conversion keeps the interpreter lock until it ends.
    """
    array = np.empty(len(values), dtype)
    for at in range(0, len(values), _PIECE):
        array[at : at + _PIECE] = values[at : at + _PIECE]
    return array


def extend(values: Any, array: Floats) -> None:
    """Append an array (N,) to a repeated field, in pieces."""
    for at in range(0, len(array), _PIECE):
        values.extend(array[at : at + _PIECE].tolist())


def _check_size(field: str, found: int, expected: int, unit: str) -> None:
    if found != expected:
        accepted = f"{expected}, as rows, classes and datatype say"
        raise InputError(field, found=f"{found} {unit}", accepted=accepted)
