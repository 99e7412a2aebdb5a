"""Conversions between arrays and `Matrix` messages."""

from __future__ import annotations

import numpy as np

from recalib.arrays import Floats
from recalib.errors import InputError
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import enum_value
from service.serving.datatypes import DATATYPES, from_bytes

__all__ = ["array_of", "matrix_of"]


def matrix_of(values: Floats, in_bytes: bool) -> pb.Matrix:
    """Return the message with values (N, K) as float32: little-endian bytes, or numbers."""
    rows, columns = values.shape
    flat = np.ascontiguousarray(values, np.dtype("<f4")).reshape(-1)
    if in_bytes:
        return pb.Matrix(rows=rows, classes=columns, raw=flat.tobytes())
    return pb.Matrix(rows=rows, classes=columns, values=flat.tolist())


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
        return np.fromiter(matrix.values, np.float32, rows * classes).reshape(rows, classes)
    datatype = enum_value("matrix.datatype", pb.Datatype.DESCRIPTOR, matrix.datatype).upper()
    expected = rows * classes * DATATYPES[datatype].itemsize
    _check_size("matrix.raw", len(matrix.raw), expected, "bytes")
    return from_bytes(matrix.raw, datatype).reshape(rows, classes)


def _check_size(field: str, found: int, expected: int, what: str) -> None:
    if found != expected:
        accepted = f"{expected}, as rows, classes and datatype say"
        raise InputError(field, found=f"{found} {what}", accepted=accepted)
