"""Population stability index (PSI): a change of the distribution of confidences.

It needs no labels, so it does not measure calibration. A shift can only make a calibrator suspect:
inputs may change while it stays calibrated, and it may lose calibration while they do not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from recalib.core.arrays import Numbers
from recalib.errors import InputError

#: Added to the count of every bin, so that an empty bin has a logarithm.
_ADDED = 0.5
#: Rate of false alarms: the share of unchanged streams that exceed the threshold.
_FALSE_ALARMS = 0.01


@dataclass(frozen=True)
class ConfidenceShift:
    """The distance of two histograms, and the threshold for it."""

    #: Population stability index, Σ (s_b − r_b) ln(s_b / r_b); range [0, ∞).
    psi: float
    #: PSI exceeds it in 1% of samples of the same distribution.
    threshold: float

    @property
    def shifted(self) -> bool:
        """Whether PSI exceeds the threshold."""
        return self.psi > self.threshold


def quantile_edges(confidences: Numbers, bins: int = 15) -> Numbers:
    """Return inner edges of bins that hold equal counts of `confidences`, at most `bins` − 1.

    They come from the calibration set and are stored with the calibrator. Tied confidences give
    fewer edges. Bins are [edge, next edge).

    Examples
    --------
    >>> from recalib.drift import quantile_edges
    >>> quantile_edges(np.linspace(0.5, 1, 101), bins=4)
    array([0.625, 0.75 , 0.875])
    """
    if len(confidences) == 0 or bins < 1:
        raise InputError(
            "confidences", found=f"{len(confidences)}, for {bins} bins", accepted="at least 1"
        )
    inner = np.quantile(confidences, np.arange(1, bins) / bins, method="higher")
    # A bin below the smallest value would always be empty.
    return np.unique(inner[inner > np.min(confidences)])


def confidence_shift(reference: ArrayLike, served: ArrayLike) -> ConfidenceShift:
    """Return the PSI of two histograms and its threshold.

    With n and m rows and B bins, PSI / (1/n + 1/m) has a χ² distribution with B − 1 degrees of
    freedom while nothing has changed. This gives the threshold. Half a row is added to every bin.
    `tests/drift/test_label_free_signals.py` counts false alarms. The usual fixed thresholds, such
    as 0.1, have a different false alarm rate at every n and m.

    Parameters
    ----------
    reference: counts (B,) of the calibration set in bins of `quantile_edges`.
    served: counts (B,) of the traffic to compare, in the same bins.

    Raises
    ------
    InputError: different shapes, a negative count, or a histogram without rows.

    Examples
    --------
    >>> from recalib.drift import confidence_shift
    >>> shift = confidence_shift([250, 250, 250, 250], [100, 100, 300, 500])
    >>> shift.psi > shift.threshold
    True
    """
    before, now = np.asarray(reference, np.float64), np.asarray(served, np.float64)
    legal = before.ndim == 1 and before.shape == now.shape and before.size
    if not legal or min(before.min(), now.min()) < 0 or not (before.sum() and now.sum()):
        raise InputError(
            "counts",
            found=f"shapes {before.shape} and {now.shape}, or counts without rows",
            accepted="two of shape (B,), no negative count, at least one row in each",
        )
    if len(before) == 1:
        return ConfidenceShift(0.0, 0.0)
    r, s = before + _ADDED, now + _ADDED
    r, s = r / r.sum(), s / s.sum()
    psi = float(np.sum((s - r) * np.log(s / r)))
    spread = float(1 / before.sum() + 1 / now.sum())
    quantile = float(scipy.special.chdtri(len(before) - 1, _FALSE_ALARMS))
    return ConfidenceShift(psi, quantile * spread)
