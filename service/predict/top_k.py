"""The most likely classes of each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers

#: Numbers per block, so that the sort keys fit the processor's cache.
_BLOCK = 1 << 17


def top_classes(probabilities: Floats, k: int) -> tuple[Integers, NDArray[np.float32]]:
    """Return the k most likely classes of each row and their probabilities, both (N, k).

    Classes are in descending order of probability; ties by class number.

    Parameters
    ----------
    probabilities: float32 (N, K), in [0, 1].
    k: from 1 to K.
    """
    rows, classes = probabilities.shape
    top = np.empty((rows, k), np.uint64)
    step = max(1, _BLOCK // classes)
    # The bits of non-negative floats sort as the floats do. The lower half of each key is the class
    # counted backwards: keys are then unique, and ties have a fixed order.
    backwards = np.arange(classes - 1, -1, -1, dtype=np.uint64)
    for start in range(0, rows, step):
        part = probabilities[start : start + step]
        keys = ((part + np.float32(0)).view(np.uint32).astype(np.uint64) << 32) | backwards
        keys.partition(classes - k, axis=1)
        likeliest = keys[:, classes - k :]
        likeliest.sort(axis=1)
        top[start : start + step] = likeliest[:, ::-1]
    numbers = (classes - 1) - (top & 0xFFFFFFFF).astype(np.int64)
    return numbers, (top >> 32).astype(np.uint32).view(np.float32)
