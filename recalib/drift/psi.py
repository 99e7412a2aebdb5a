"""Has the distribution of confidences changed? Needs no labels, and so says nothing of calibration.

A shift here can only make a calibrator suspect: inputs may change while it goes on telling the
truth, and it may stop while they do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from recalib.errors import InputError

__all__ = ["ConfidenceShift", "confidence_shift", "quantile_edges"]

Values = NDArray[np.float64]

#: Added to every cell, so that an empty one has a logarithm.
_ADDED = 0.5
#: How often a stream that has not changed may look as if it had.
_FALSE_ALARMS = 0.01


@dataclass(frozen=True)
class ConfidenceShift:
    """How far two histograms are apart, and how far chance alone takes them."""

    #: Population stability index, Σ (s_b − r_b) ln(s_b / r_b); range [0, ∞).
    psi: float
    #: What it exceeds in one of a hundred samples of the same distribution.
    threshold: float

    @property
    def shifted(self) -> bool:
        """Whether it is beyond what chance explains."""
        return self.psi > self.threshold


def quantile_edges(confidences: Values, bins: int = 15) -> Values:
    """Return inner edges of bins that hold equal counts of `confidences`, at most `bins` − 1.

    Taken from the calibration set and kept with the calibrator. Where confidences tie, an edge
    that two bins would share is left out. Bins are [edge, next edge).
    """
    if len(confidences) == 0 or bins < 1:
        raise InputError(
            "confidences", found=f"{len(confidences)}, for {bins} bins", accepted="at least one"
        )
    inner = np.quantile(confidences, np.arange(1, bins) / bins, method="higher")
    least = np.min(confidences)
    # A bin below the least value would be empty by construction.
    return np.unique(inner[inner > least])


def confidence_shift(reference: ArrayLike, seen: ArrayLike) -> ConfidenceShift:
    """Return how far the counts `seen` are from those of the calibration set, bin by bin.

    With n and m rows in all and B bins, PSI over (1/n + 1/m) is distributed as χ² with B − 1
    degrees of freedom while nothing has changed, which gives the threshold; half a row is added
    to every cell. `tests/drift/test_label_free_signals.py` counts false alarms. A customary fixed
    threshold, such as 0.1, means something else at every size.

    Parameters
    ----------
    reference: counts (B,) of the calibration set in bins of `quantile_edges`.
    seen: counts (B,) of what is served now, in the same bins.

    Raises
    ------
    InputError: other shapes, a negative count, or nothing counted on one of the sides.
    """
    before, now = np.asarray(reference, np.float64), np.asarray(seen, np.float64)
    legal = before.ndim == 1 and before.shape == now.shape and before.size
    if not legal or min(before.min(), now.min()) < 0 or not (before.sum() and now.sum()):
        raise InputError(
            "counts",
            found=f"shapes {before.shape} and {now.shape}, or counts without rows",
            accepted="two of (B,), none negative, some rows in each",
        )
    if len(before) == 1:
        return ConfidenceShift(0.0, 0.0)
    r, s = before + _ADDED, now + _ADDED
    r, s = r / r.sum(), s / s.sum()
    psi = float(np.sum((s - r) * np.log(s / r)))
    spread = float(1 / before.sum() + 1 / now.sum())
    quantile = float(scipy.special.chdtri(len(before) - 1, _FALSE_ALARMS))
    return ConfidenceShift(psi, quantile * spread)
