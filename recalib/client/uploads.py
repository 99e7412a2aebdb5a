"""Data on its way to a server: a file as it is, or arrays as safetensors, piece by piece.

Of the formats that a server reads, safetensors is the one that can be written as it is sent: its
length is known before, and behind a short header are the arrays' bytes as they lie in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from recalib.arrays import check_labels, check_logits, check_probabilities
from recalib.client.progress import Report
from recalib.errors import InputError, UnsupportedError

__all__ = ["Upload", "of_arrays", "of_file"]

#: Bytes that are read and sent at once.
_PIECE = 1 << 20
_DTYPES = {"float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64"}


class Upload:
    """A body of `size` bytes, read anew for each attempt; `digest` is of the last whole one."""

    def __init__(self, media_type: str, size: int, read: Callable[[], Iterator[bytes]]) -> None:
        self.media_type = media_type
        self.size = size
        self.digest = ""
        self.report: Report | None = None
        self._read = read

    def pieces(self) -> Iterator[bytes]:
        """Yield the body from its beginning."""
        digest = hashlib.sha256()
        for piece in self._read():
            digest.update(piece)
            yield piece
        self.digest = digest.hexdigest()

    def passed(self, sent: int) -> None:
        """Tell whoever wants to know."""
        if self.report is not None:
            text = f"{sent / 1e6:.1f} of {self.size / 1e6:.1f} MB"
            self.report(sent / self.size, text if sent < self.size else "being checked")


def of_file(path: Path) -> Upload:
    """Return the upload of a file; the end of its name tells its format.

    Raises
    ------
    UnsupportedError: a name that ends otherwise.
    InputError: a file that cannot be read, or that changes while it is read.
    """
    from recalib.files import MEDIA_TYPES, SUFFIXES

    format = SUFFIXES.get(path.suffix.lower())
    if format is None:
        found = f"a name ending in {path.suffix!r}"
        raise UnsupportedError("data", found=found, accepted=", ".join(SUFFIXES))
    media_type = next(one for one, name in MEDIA_TYPES.items() if name == format)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
    except OSError as error:
        found = f"{path} ({error.strerror})"
        raise InputError("data", found=found, accepted="a readable file") from None
    if size == 0:
        raise InputError("data", found=f"{path} (empty)", accepted="a file with data")
    return Upload(media_type, size, lambda: _pieces_of_file(path, size))


def of_arrays(
    values: ArrayLike, labels: ArrayLike, input: Literal["logits", "probabilities"]
) -> Upload:
    """Return the upload of logits or probabilities (N, K), float16/32/64, and labels (N,).

    Raises
    ------
    InputError: whatever `recalib.arrays` refuses.
    """
    if input not in ("logits", "probabilities"):
        raise InputError("input", found=repr(input), accepted="logits or probabilities")
    check = check_logits if input == "logits" else check_probabilities
    rows = check(values, field=input)
    arrays: dict[str, NDArray[Any]] = {input: rows, "labels": check_labels(labels, logits=rows)}
    header = _header(arrays)
    size = len(header) + sum(array.nbytes for array in arrays.values())
    return Upload(
        "application/x-safetensors", size, lambda: _pieces_of_arrays(header, arrays.values())
    )


def _pieces_of_file(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            left -= len(piece)
            if left < 0:
                break
            yield piece
    if left:
        found = f"{path}, whose size changes while it is read"
        raise InputError("data", found=found, accepted="a complete file")


def _pieces_of_arrays(header: bytes, arrays: Any) -> Iterator[bytes]:
    yield header
    for array in arrays:
        step = max(1, _PIECE // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            part = array[start : start + step]
            yield part.astype(part.dtype.newbyteorder("<"), copy=False).tobytes()


def _header(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return the beginning of a safetensors file: the header's length, and where arrays are."""
    places, end = {}, 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        places[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(places, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that what follows is aligned
    return len(text).to_bytes(8, "little") + text
