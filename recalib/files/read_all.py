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
        logits, labels = _allocate(file, file.rows)
        for chunk in file.chunks():
            _copy(chunk, logits, labels)
        return Data(logits, labels)
    pending = deque(file.chunks())
    logits, labels = _allocate(file, sum(len(chunk.logits) for chunk in pending))
    while pending:
        _copy(pending.popleft(), logits, labels)
    return Data(logits, labels)


def _allocate(file: DataFile, rows: int) -> tuple[NDArray[np.floating[Any]], NDArray[Any] | None]:
    try:
        logits = np.empty((rows, file.classes), file.dtype)
        labels: NDArray[Any] | None = None
        if file.has_labels and file.is_multilabel:
            labels = np.empty((rows, file.classes), np.bool_)
        elif file.has_labels:
            labels = np.empty(rows, np.int64)
    except (MemoryError, ValueError) as error:  # ValueError: more bytes than an address has
        raise TooLargeError(
            "data",
            found=f"{rows} rows of {file.classes} classes, more than fits into memory",
            accepted="less data",
        ) from error
    return logits, labels


def _copy(chunk: Chunk, logits: NDArray[np.floating[Any]], labels: NDArray[Any] | None) -> None:
    stop = chunk.first_row + len(chunk.logits)
    if stop > len(logits):
        raise InputError(
            "data", found=f"more than {len(logits)} rows", accepted="the number in the header"
        )
    logits[chunk.first_row : stop] = chunk.logits
    if labels is not None and chunk.labels is not None:
        labels[chunk.first_row : stop] = chunk.labels
