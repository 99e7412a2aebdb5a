"""Read all rows of a file into memory."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError, TooLargeError
from recalib.files.base import Chunk, Data, DataFile


def read_all(file: DataFile) -> Data:
    """Return all rows of `file`.

    If N is known, each chunk is copied into the result at once. Otherwise chunks are collected, and
    each is freed after it has been copied. In both cases the peak is the data plus about a chunk:
    the system provides the memory of the result as it is written.
    """
    if file.rows is not None:
        data = _allocate(file, file.rows)
        for chunk in file.chunks():
            _copy(chunk, data)
        return data
    pending = deque(file.chunks())
    data = _allocate(file, sum(len(chunk.logits) for chunk in pending))
    while pending:
        _copy(pending.popleft(), data)
    return data


def _allocate(file: DataFile, rows: int) -> Data:
    try:
        logits = np.empty((rows, file.classes), file.dtype)
        labels: NDArray[Any] | None = None
        if file.has_labels and file.is_multilabel:
            labels = np.empty((rows, file.classes), np.bool_)
        elif file.has_labels:
            labels = np.empty(rows, np.int64)
        weights = np.empty(rows, np.float64) if file.has_weights else None
    except (MemoryError, ValueError) as error:  # ValueError: more bytes than an address has
        raise TooLargeError(
            "data",
            found=f"{rows} rows of {file.classes} classes, more than fits into memory",
            accepted="less data",
        ) from error
    return Data(logits, labels, weights)


def _copy(chunk: Chunk, data: Data) -> None:
    stop = chunk.first_row + len(chunk.logits)
    if stop > len(data.logits):
        raise InputError(
            "data", found=f"more than {len(data.logits)} rows", accepted="the number in the header"
        )
    data.logits[chunk.first_row : stop] = chunk.logits
    if data.labels is not None and chunk.labels is not None:
        data.labels[chunk.first_row : stop] = chunk.labels
    if data.weights is not None and chunk.weights is not None:
        data.weights[chunk.first_row : stop] = chunk.weights
