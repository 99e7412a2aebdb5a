"""Digests of rows, which recognise a row that was fitted before.

Legend: N rows, K classes.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats

Digests = NDArray[np.uint64]

#: Of a stored digest.
_STORED = np.dtype("<u8")
DIGEST_BYTES = _STORED.itemsize
#: Digests with as many rows on average do not tell rows apart.
_MAX_REPEATS = 5
#: The share of rows of two classes that may equal others by chance.
_MAX_CHANCE = 0.01
#: Numbers of a block of rows: 32 MB of float32.
_BLOCK = 8_000_000


def row_digests(values: Floats) -> Digests:
    """Return a 64-bit digest (N,) of each row of logits or probabilities (N, K).

    It is BLAKE2b with 8 bytes, of the row's values as little-endian float32. It does not depend on
    the order of the rows, on the file's format, or on whether values of float32 are stored as
    float64. A new row equals one of n others with probability n / 2⁶⁴; of two
    classes more often, see `may_be_chance`.

    The label is not included. If it were, a file in which some labels are corrected would have just
    these rows as new ones, and a comparison on them would be selected by outcome.

    Other values make another row: fewer digits, float16, or probabilities instead of logits.
    """
    rows, classes = values.shape
    step = max(1, _BLOCK // classes)
    digests = bytearray()
    for start in range(0, rows, step):
        with np.errstate(over="ignore"):  # beyond the range of float32: infinite
            block = np.ascontiguousarray(values[start : start + step], "<f4")
        block = block + np.float32(0)  # −0 equals 0
        for row in block:
            digests += hashlib.blake2b(row, digest_size=DIGEST_BYTES).digest()
    return decode_digests(bytes(digests))


def are_distinct(digests: Digests) -> bool:
    """Return whether digests (N,) tell rows apart.

    Scores of few values, such as those of a forest of ten trees, repeat: new rows equal old ones.
    On rows of few values a map has little advantage where it was fitted, since it has few values to
    fit, so such rows count as new ones.
    """
    return len(digests) < _MAX_REPEATS * len(np.unique(digests))


def may_be_chance(equal: int, rows: int, classes: int) -> bool:
    """Return whether so few of N rows equal others that they may be different rows.

    Rows of two classes may have one degree of freedom, the log-odds: of 20,000 new rows, a few
    equal one of 20,000 others in float32, and more if the scores have few digits.
    """
    return classes == 2 and equal <= _MAX_CHANCE * rows


def encode_digests(digests: Digests) -> bytes:
    """Return the different digests in ascending order, 8 bytes each."""
    return np.unique(digests).astype(_STORED).tobytes()


def decode_digests(stored: bytes) -> Digests:
    """Return digests (N,) of 8 bytes each."""
    return np.frombuffer(stored, _STORED).astype(np.uint64)
