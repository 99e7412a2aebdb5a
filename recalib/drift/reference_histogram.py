"""How sure a calibrator was on its calibration set, in bins that its traffic is counted in."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recalib.card import Card, ConfidenceHistogram
from recalib.drift.calibration_sums import bin_indices
from recalib.drift.psi import quantile_edges

__all__ = ["BINS", "reference_edges", "reference_histogram"]

#: Bins of a histogram; fewer where confidences tie.
BINS = 15
#: Edges lie so far below the confidence that they begin at. Maps of a few values, such as
#: histogram binning, put many rows on the edge itself, and float32 would scatter those around it.
_BELOW = 1e-6


def reference_histogram(confidences: NDArray[np.float64]) -> ConfidenceHistogram:
    """Return the bins at the quantiles of `confidences` (N,), and how many of them are in each."""
    edges = quantile_edges(confidences, BINS) - _BELOW
    edges = edges[edges > 0]
    counts = np.bincount(bin_indices(edges, confidences), minlength=len(edges) + 1)
    return ConfidenceHistogram(tuple(edges.tolist()), tuple(counts.tolist()))


def reference_edges(card: Card) -> NDArray[np.float64]:
    """Return the inner edges of the bins that a calibrator's predictions are counted in.

    Of equal width where its card has none, as it has where the fit is older than the field; there
    is nothing then to compare what is served with.
    """
    if card.confidences is None:
        return np.arange(1, BINS) / BINS
    return np.array(card.confidences.edges, np.float64)
