"""Reference histogram: monitored probabilities of the calibration set, in the bins of traffic."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.card import Card, ConfidenceHistogram
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.psi import quantile_edges
from recalib.drift.target import RowTarget
from recalib.stats.groups import group_sums

#: Bins of a histogram; fewer where probabilities tie.
BINS = 15
#: An edge lies this far below the probability that starts its bin. Maps with few values, such as
#: histogram binning, put many rows on the edge itself; float32 rounding would scatter them.
_BELOW = 1e-6


def reference_histogram(
    probabilities: NDArray[np.float64],
    target: RowTarget = "top_label",
    weights: NDArray[np.float64] | None = None,
) -> ConfidenceHistogram:
    """Return bins at the quantiles of `probabilities` (N,), with the count of each.

    Parameters
    ----------
    target: what the probabilities are, see `monitored_probabilities`.
    weights: (N,), whose sum is the effective number of rows, which the counts then add up to but
        for rounding; see `recalib.core.arrays.check_weights`. None if all are 1.
    """
    edges = quantile_edges(probabilities, BINS) - _BELOW
    edges = edges[edges > 0]
    where = left_closed_bins(edges, probabilities)
    return histogram_of_counts(edges, group_sums(where, weights, len(edges) + 1), target)


def histogram_of_counts(
    edges: NDArray[np.float64], counts: NDArray[Any], target: RowTarget
) -> ConfidenceHistogram:
    """Return a histogram from the rows of its bins (B,), rounded to whole ones."""
    rows = np.rint(counts).astype(np.int64)
    return ConfidenceHistogram(tuple(edges.tolist()), tuple(rows.tolist()), target)


def reference_target(card: Card) -> RowTarget:
    """Return what a calibrator is monitored by; of cards of earlier versions, the confidence."""
    return "top_label" if card.confidences is None else card.confidences.target


def unmeasured_histogram(card: Card) -> ConfidenceHistogram | None:
    """Return the histogram of a calibrator whose calibration set is not known; None for K > 2.

    Of two classes, it has bins of P(y = 1) of equal width, and no rows: there is no PSI.
    """
    if card.task == "multilabel" or card.classes > 2:
        return None
    return ConfidenceHistogram(tuple(_equal_edges().tolist()), (0,) * BINS, "positive_class")


def _equal_edges() -> NDArray[np.float64]:
    return np.arange(1, BINS) / BINS


def reference_edges(card: Card) -> NDArray[np.float64]:
    """Return the inner edges of the bins in which a calibrator's predictions are counted.

    A card of an older fit has no histogram: the bins are then of equal width, and the confidences
    of its traffic are not compared with the calibration set.
    """
    if card.confidences is None:
        return _equal_edges()
    return np.array(card.confidences.edges, np.float64)
