"""How sure a calibrator was on its calibration set, in bins that its traffic is counted in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.card import ConfidenceBins
from recalib.drift.confidence_shift import quantile_edges
from recalib.drift.sums import bin_places

__all__ = ["BINS", "bins_of", "equal_width"]

#: Bins of a histogram; fewer where confidences tie.
BINS = 15
#: Edges lie so far below the confidence that they begin at. Maps of a few values, such as
#: histogram binning, put many rows on the edge itself, and float32 would scatter those around it.
_BELOW = 1e-6


def bins_of(confidences: NDArray[np.float64]) -> ConfidenceBins:
    """Return the bins at the quantiles of `confidences` (N,), and how many of them are in each."""
    edges = quantile_edges(confidences, BINS) - _BELOW
    edges = edges[edges > 0]
    counts = np.bincount(bin_places(edges, confidences), minlength=len(edges) + 1)
    return ConfidenceBins(tuple(edges.tolist()), tuple(counts.tolist()))


def equal_width(bins: int = BINS) -> NDArray[np.float64]:
    """Return inner edges of bins of equal width, for calibrators whose card has none."""
    return np.arange(1, bins) / bins
