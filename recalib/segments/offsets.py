"""The formula of the offsets of segments.

Legend: N rows, K classes, G segments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


def membership(masks: list[NDArray[np.bool_]]) -> Any:
    """Return the sparse matrix (N, G) of the rows (N,) of each segment."""
    return scipy.sparse.csr_array(np.stack(masks, axis=1)).astype(np.float64)


def log_of(probabilities: NDArray[Any]) -> Matrix:
    """Return log p, −inf where p is 0, in float64."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities.astype(np.float64))


def adjust(log_p: Matrix, members: Any, offsets: Matrix) -> Matrix:
    """Return log q (N, K), q = softmax(eᵃ·log p + b), with a and b summed over a row's segments.

    Parameters
    ----------
    members: (N, G), of `membership`.
    offsets: (G, 1 + K): a and b of each segment.
    """
    of_rows = members @ offsets
    z = np.exp(of_rows[:, :1]) * log_p + of_rows[:, 1:]
    log_q: Matrix = scipy.special.log_softmax(z, axis=1)
    return log_q
