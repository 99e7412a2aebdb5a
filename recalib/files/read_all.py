"""A whole file in memory, once."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError, TooLargeError
from recalib.files.base import Chunk, Data, DataFile

__all__ = ["read_whole"]


def read_whole(file: DataFile) -> Data:
    """Return all rows of `file`.

    Where the number of rows is known, chunks go straight to their place; otherwise they are
    kept, and freed one by one while the result fills. Either way the peak is the data plus a
    chunk or so: memory that was asked for but not yet written to costs nothing.
    """
    if file.rows is not None:
        logits, labels = _allocate(file, file.rows)
        for chunk in file.chunks():
            _place(chunk, logits, labels)
        return Data(logits, labels)
    waiting = deque(file.chunks())
    logits, labels = _allocate(file, sum(len(chunk.logits) for chunk in waiting))
    while waiting:
        _place(waiting.popleft(), logits, labels)
    return Data(logits, labels)


def _allocate(
    file: DataFile, rows: int
) -> tuple[NDArray[np.floating[Any]], NDArray[np.int64] | None]:
    try:
        logits = np.empty((rows, file.classes), file.dtype)
        labels = np.empty(rows, np.int64) if file.has_labels else None
    except (MemoryError, ValueError) as error:  # ValueError: more bytes than an address has
        raise TooLargeError(
            "data",
            found=f"{rows} rows of {file.classes} classes, more than fits into memory",
            accepted="less data",
        ) from error
    return logits, labels


def _place(
    chunk: Chunk, logits: NDArray[np.floating[Any]], labels: NDArray[np.int64] | None
) -> None:
    stop = chunk.first_row + len(chunk.logits)
    if stop > len(logits):
        raise InputError(
            "data", found=f"more than {len(logits)} rows", accepted="as many as the header says"
        )
    logits[chunk.first_row : stop] = chunk.logits
    if labels is not None and chunk.labels is not None:
        labels[chunk.first_row : stop] = chunk.labels
