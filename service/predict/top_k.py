"""The likeliest classes of each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers

__all__ = ["top_classes"]

#: Numbers looked at together, so that what they are sorted by stays in the processor's cache.
_BLOCK = 1 << 17


def top_classes(probabilities: Floats, k: int) -> tuple[Integers, NDArray[np.float32]]:
    """Return the k likeliest classes of each row and their probabilities, both (N, k).

    The likeliest first; of classes that are exactly alike, the one with the lower number.

    Parameters
    ----------
    probabilities: float32 (N, K), in [0, 1].
    k: from 1 to K.
    """
    rows, classes = probabilities.shape
    found = np.empty((rows, k), np.uint64)
    step = max(1, _BLOCK // classes)
    # Bits of floats from 0 on are in the floats' order. With the class below them, counted
    # backwards, each number says all: no two are alike, so that no order is left to chance.
    backwards = np.arange(classes - 1, -1, -1, dtype=np.uint64)
    for start in range(0, rows, step):
        part = probabilities[start : start + step]
        keys = ((part + np.float32(0)).view(np.uint32).astype(np.uint64) << 32) | backwards
        keys.partition(classes - k, axis=1)
        likeliest = keys[:, classes - k :]
        likeliest.sort(axis=1)
        found[start : start + step] = likeliest[:, ::-1]
    numbers = (classes - 1) - (found & 0xFFFFFFFF).astype(np.int64)
    return numbers, (found >> 32).astype(np.uint32).view(np.float32)
