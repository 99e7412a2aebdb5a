"""What losses, objectives and metrics share: soft bins, top predictions, means by class.

Written in the operations of `recalib.ops`, for the backends that compute. Legend: N rows,
K classes, M bins.
"""

from __future__ import annotations

import numpy as np

from recalib.ops.base import Array, FittingOps

__all__ = ["class_means", "soft_bins", "top_predictions"]


def top_predictions(
    ops: FittingOps, log_probabilities: Array, labels: Array
) -> tuple[Array, Array]:
    """Return the confidence of each prediction, and 1 where it is right or 0, each (N,)."""
    confidence = ops.exp(ops.greatest(log_probabilities))[:, 0]
    return confidence, ops.hits(log_probabilities, labels)


def soft_bins(ops: FittingOps, confidence: Array, bins: int, temperature: float) -> Array:
    """Return how much each confidence belongs to each bin, (N, M); rows sum to one.

    u_j(c) = softmax_j(−(c − ξ_j)² / T), where ξ_j = (j − ½)/M are the centres of equal-width bins;
    T → 0 gives hard bins. Source: paper 000, section 4.1.
    """
    centres = ops.constant((np.arange(bins) + 0.5) / bins)
    gaps = confidence[:, None] - centres[None, :]
    return ops.softmax(-(gaps * gaps) / temperature)


def class_means(
    ops: FittingOps, values: Array, labels: Array, weights: Array, classes: int
) -> tuple[Array, Array]:
    """Return the weighted mean of `values` (N,) in each class that occurs, and which those are.

    Classes without weight are left out: (C,) means and the (C,) indices of their classes.
    """
    counts = ops.sum_by(weights, labels, classes)
    present = np.flatnonzero(np.asarray(counts) > 0)
    sums = ops.sum_by(values * weights, labels, classes)
    return sums[present] / counts[present], present
