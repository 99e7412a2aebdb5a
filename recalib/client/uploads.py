"""Uploads in chunks: a file, or arrays in the safetensors format.

safetensors can be written while it is sent: its length is known in advance, and after a short
header it consists of the bytes of the arrays.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.client.calibration import Input
from recalib.client.progress import Report
from recalib.core.arrays import check_labels, check_logits, check_probabilities
from recalib.core.label_arrays import check_label_matrix, check_label_scores
from recalib.core.options import check_choice
from recalib.errors import InputError, UnsupportedError

_CHUNK_BYTES = 1 << 20
_DTYPES = {"float16": "F16", "float32": "F32", "float64": "F64", "int64": "I64", "uint8": "U8"}


class Upload:
    """A body of `size` bytes, read again for each attempt.

    `digest` is the SHA-256 of the last complete attempt, in hexadecimal.
    """

    def __init__(self, media_type: str, size: int, read: Callable[[], Iterator[bytes]]) -> None:
        self.media_type = media_type
        self.size = size
        self.digest = ""
        self.report: Report | None = None
        self._read = read

    def chunks(self) -> Iterator[bytes]:
        """Yield the body from its beginning."""
        digest = hashlib.sha256()
        for chunk in self._read():
            digest.update(chunk)
            yield chunk
        self.digest = digest.hexdigest()

    def on_sent(self, sent: int) -> None:
        """Report the number of bytes sent."""
        if self.report is not None:
            text = f"{sent / 1e6:.1f} of {self.size / 1e6:.1f} MB"
            self.report(sent / self.size, text if sent < self.size else "being checked")


def file_upload(path: Path, *, field: str = "data", formats: Sequence[str] | None = None) -> Upload:
    """Return the upload of a file; the suffix of its name determines the format.

    Parameters
    ----------
    field: the name of the argument, for errors.
    formats: the accepted formats; by default all.

    Raises
    ------
    UnsupportedError: the suffix is unknown.
    InputError: the file cannot be read, or it changes while it is read.
    """
    from recalib.files import MEDIA_TYPES, SUFFIXES

    format = SUFFIXES.get(path.suffix.lower())
    if format is None or not (formats is None or format in formats):
        suffixes = [suffix for suffix, name in SUFFIXES.items() if not formats or name in formats]
        is_folder = os.path.isdir(path)  # noqa: PTH112 - `is_dir` raises for a very long name
        found = f"{path} (a folder)" if is_folder else f"a name ending in {path.suffix!r}"
        raise UnsupportedError(field, found=found, accepted=", ".join(suffixes))
    media_type = next(media_type for media_type, name in MEDIA_TYPES.items() if name == format)
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
    except OSError as error:
        found = f"{path} ({error.strerror})"
        raise InputError(field, found=found, accepted="a readable file") from None
    if size == 0:
        raise InputError(field, found=f"{path} (empty)", accepted="a file with data")
    return Upload(media_type, size, lambda: _read_file(path, size))


def array_upload(
    values: ArrayLike,
    labels: ArrayLike | None,
    input: Input,
    task: str = "multiclass",
) -> Upload:
    """Return the upload of logits or probabilities (N, K), float16/32/64, and labels or None.

    Labels are (N,), or (N, K) of independent labels, whose scores are log-odds or probabilities.
    Without labels, `task` says which of the two the scores are.

    Raises
    ------
    InputError: `recalib.core.arrays` rejects the arrays.
    """
    check_choice("input", input, Input)
    arrays: dict[str, NDArray[Any]] = {}
    if labels is not None and np.ndim(labels) == 2:
        arrays[input] = check_label_scores(values, input=input)
        matrix = check_label_matrix(labels, shape=arrays[input].shape)
        arrays["labels"] = matrix.astype(np.uint8)
    elif labels is None and task == "multilabel":
        arrays[input] = check_label_scores(values, input=input)
    else:
        check = check_logits if input == "logits" else check_probabilities
        arrays[input] = check(values, field=input)
        if labels is not None:
            arrays["labels"] = check_labels(labels, logits=arrays[input])
    header = _header(arrays)
    size = len(header) + sum(array.nbytes for array in arrays.values())
    return Upload("application/x-safetensors", size, lambda: _read_arrays(header, arrays.values()))


def _read_file(path: Path, size: int) -> Iterator[bytes]:
    remaining = size
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            remaining -= len(chunk)
            if remaining < 0:
                break
            yield chunk
    if remaining:
        found = f"{path}, whose size changes while it is read"
        raise InputError("data", found=found, accepted="a complete file")


def _read_arrays(header: bytes, arrays: Any) -> Iterator[bytes]:
    yield header
    for array in arrays:
        step = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            rows = array[start : start + step]
            yield rows.astype(rows.dtype.newbyteorder("<"), copy=False).tobytes()


def _header(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Return the header of a safetensors file: its length, and the offsets of the arrays."""
    entries, end = {}, 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        entries[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": array.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the arrays that follow are aligned
    return len(text).to_bytes(8, "little") + text
