"""`.safetensors`: tensors `logits` (N, K) and `labels` (N,).

The safetensors package maps the file into memory. Mapped pages count as memory of the process, and
a blob in a bucket cannot be mapped, so this module reads the format itself: 8 bytes of length, a
JSON header, and the numbers. As in that package, the tensors must cover the numbers exactly: files
with gaps or overlaps are rejected, so that no two programs read different numbers from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from recalib.errors import InputError
from recalib.files.base import DataFile, Layout, Numbers, Rows
from recalib.files.column_names import array_names
from recalib.files.raw_arrays import (
    RawArray,
    StreamView,
    check_row_shape,
    check_shape,
    read_exactly,
    read_rows,
    size_of,
    zip_rows,
)

#: bfloat16 is the upper half of a float32 and is read as its 16 bits.
_DTYPES = {
    "F16": "<f2",
    "BF16": "<u2",
    "F32": "<f4",
    "F64": "<f8",
    "BOOL": "?",
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
}
#: The header of a few tensors takes a few hundred bytes. Parsed JSON takes ten times its size.
_MAX_HEADER_BYTES = 1 << 20


class SafetensorsFile(DataFile):
    """A safetensors file. Other tensors are ignored."""

    name: ClassVar[str] = "safetensors"
    media_types: ClassVar[tuple[str, ...]] = ("application/x-safetensors",)
    suffixes: ClassVar[tuple[str, ...]] = (".safetensors",)

    def _open(self) -> Layout:
        self._header, self._start = self._parse()
        tensors = [name for name in self._header if name != "__metadata__"]
        names = array_names(tensors, self._declared, self._selection)
        scores = str(names.values)
        self._scores = self._tensor(scores, self._declared)
        self._is_bfloat16 = self._header[scores]["dtype"] == "BF16"
        rows, classes, dtype = check_shape(self._scores[0], self._declared)
        self._labels = self._other(names.labels, self._labels_shape(rows, classes), "labels")
        self._weights = self._other(names.weights, (rows,), "weights")
        self._check_offsets()
        if self._is_bfloat16:
            dtype = np.dtype(np.float32)
        has_labels, has_weights = self._labels is not None, self._weights is not None
        return Layout(rows, classes, dtype, has_labels, has_weights)

    def _other(
        self, name: str | None, shape: tuple[int, ...], field: str
    ) -> tuple[RawArray, int] | None:
        if name is None:
            return None
        tensor = self._tensor(name, field)
        if self._header[name]["dtype"] == "BF16":  # its bits would be read as integers
            raise InputError(field, found="dtype BF16", accepted="another type of numbers")
        check_row_shape(tensor[0], shape, field)
        return tensor

    def _read(self, step: int) -> Iterator[Rows]:
        scores = self._rows(*self._scores, step, self._declared)
        if self._is_bfloat16:
            scores = map(_widen_bfloat16, scores)
        labels = None if self._labels is None else self._rows(*self._labels, step, "labels")
        weights = None if self._weights is None else self._rows(*self._weights, step, "weights")
        return zip_rows(scores, labels, weights)

    def _rows(self, array: RawArray, start: int, step: int, field: str) -> Iterator[Numbers]:
        return read_rows(StreamView(self._stream, start), array, step, field)

    def _parse(self) -> tuple[dict[str, Any], int]:
        window = StreamView(self._stream, 0)
        length = int.from_bytes(read_exactly(window, 8, "data"), "little")
        if length > _MAX_HEADER_BYTES:
            raise InputError(
                "data", found=f"a header of {length} bytes", accepted=f"at most {_MAX_HEADER_BYTES}"
            )
        header = json.loads(read_exactly(window, length, "data"), object_pairs_hook=_unique_names)
        if not isinstance(header, dict):
            raise InputError("data", found="a header that is not an object", accepted="safetensors")
        return header, 8 + length

    def _check_offsets(self) -> None:
        """Raise `InputError` unless the tensors cover what follows the header, without overlap."""
        position = 0
        for begin, end, name in sorted(self._offsets()):
            if begin != position or end < begin:
                raise InputError(
                    "data",
                    found=f"tensor {name!r:.40} at bytes {begin} to {end}, not from {position}",
                    accepted="tensors without gaps and overlaps",
                )
            position = end
        size = size_of(self._stream) - self._start
        if position != size:
            raise InputError(
                "data",
                found=f"{size} bytes of numbers where the header claims {position}",
                accepted="a complete file without other bytes",
            )

    def _offsets(self) -> Iterator[tuple[int, int, str]]:
        for name, entry in self._header.items():
            if name != "__metadata__":
                begin, end = (_to_size(offset) for offset in entry["data_offsets"])
                yield begin, end, name
                if entry["dtype"] in _DTYPES:
                    self._tensor(name, "data")

    def _tensor(self, name: str, field: str) -> tuple[RawArray, int]:
        """Return a tensor and its offset in the file; its size must be that of its shape."""
        entry = self._header[name]
        begin, end = (_to_size(offset) for offset in entry["data_offsets"])
        if entry["dtype"] not in _DTYPES:
            raise InputError(
                field, found=f"dtype {entry['dtype']!s:.20}", accepted=", ".join(_DTYPES)
            )
        array = RawArray(
            np.dtype(_DTYPES[entry["dtype"]]), tuple(_to_size(n) for n in entry["shape"])
        )
        if end - begin != array.nbytes:
            raise InputError(
                field,
                found=f"{end - begin} bytes where the header claims {array}, {array.nbytes} bytes",
                accepted="a complete file",
            )
        return array, self._start + begin


def _widen_bfloat16(bits: Numbers) -> Numbers:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _to_size(value: object) -> int:
    if type(value) is not int or value < 0:  # not bool, which JSON's `true` would be
        raise ValueError(f"{value!r:.40} is not a size")
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a name occurs twice in the header")
    return entries
