"""`.safetensors`: tensors `logits` (N, K) and `labels` (N,).

The safetensors package maps the file into memory. Mapped pages count as memory of the process, and
a blob in a bucket cannot be mapped, so this module reads the format itself: 8 bytes of length, a
JSON header, and the numbers. As in that package, the tensors must cover the numbers exactly: files
with gaps or overlaps are rejected, so that no two programs read different numbers from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from recalib.errors import InputError
from recalib.files.base import Layout, Numbers
from recalib.files.raw_arrays import (
    ArrayFile,
    RawArray,
    StreamView,
    read_exactly,
    read_rows,
    size_of,
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


class SafetensorsFile(ArrayFile):
    """A safetensors file. Other tensors are ignored."""

    name: ClassVar[str] = "safetensors"
    media_types: ClassVar[tuple[str, ...]] = ("application/x-safetensors",)
    suffixes: ClassVar[tuple[str, ...]] = (".safetensors",)

    def _open(self) -> Layout:
        self._header, self._start = self._parse()
        layout = super()._open()
        self._check_offsets()
        is_bfloat16 = self._is_bfloat16(self._arrays[self._declared][0])
        return replace(layout, dtype=np.dtype(np.float32)) if is_bfloat16 else layout

    def _names(self) -> list[str]:
        return [name for name in self._header if name != "__metadata__"]

    def _array(self, name: str, field: str) -> RawArray:
        array, _ = self._tensor(name, field)
        if self._is_bfloat16(name) and field != self._declared:  # its bits would be integers
            raise InputError(field, found="dtype BF16", accepted="another type of numbers")
        return array

    def _rows(self, name: str, array: RawArray, step: int, field: str) -> Iterator[Numbers]:
        view = StreamView(self._stream, self._tensor(name, field)[1])
        rows = read_rows(view, array, step, field)
        return map(_widen_bfloat16, rows) if self._is_bfloat16(name) else rows

    def _is_bfloat16(self, name: str) -> bool:
        return bool(self._header[name]["dtype"] == "BF16")

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
