"""Formulas that losses and objectives share: scores of rows and soft bins.

They are written in the operations of `recalib.ops`. Legend: N rows, K classes, M bins.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from recalib.ops.base import Array, FittingOps


def focal_terms(
    ops: FittingOps, log_probabilities: Array, labels: Array, gamma: float | Array
) -> Array:
    """Return −(1 − p_y)^γ log p_y of each row, (N,); `gamma` is a number or (N,).

    Source: paper 004, section 4.
    """
    return focal_terms_from_log_p(ops, ops.pick(log_probabilities, labels), gamma)


def focal_terms_from_log_p(ops: FittingOps, log_p: Array, gamma: float | Array) -> Array:
    """Return `focal_terms` from log p_y, (N,)."""
    # A root has no slope at 0, and the power of a negative number (p rounded above 1) is NaN.
    complement = ops.clip_min(1 - ops.exp(log_p), 1e-12)
    return -(complement**gamma * log_p)


def squared_error(ops: FittingOps, log_probabilities: Array, labels: Array) -> Array:
    """Return Σ_k (p_k − y_k)² of each row, (N,)."""
    p = ops.exp(log_probabilities)
    return ops.sum(p * p)[:, 0] - 2 * ops.pick(p, labels) + 1


def smoothed_cross_entropy(
    ops: FittingOps, log_probabilities: Array, labels: Array, smoothing: float
) -> Array:
    """Return −(1 − α) log p_y − α/(K−1) Σ_{k≠y} log p_k of each row, (N,).

    The other unmasked classes get α/(K−1), with K the number of unmasked classes of the row.

    Source: paper 004, section 5.1.
    """
    masked = ops.is_masked(log_probabilities)
    log_p = ops.where(masked, 0.0, log_probabilities)
    of_label = ops.pick(log_p, labels)
    other_classes = ops.sum(ops.where(masked, 0.0, 1.0))[:, 0] - 1
    # A row with one unmasked class has no others, and log p = 0.
    share = smoothing / ops.where(other_classes > 0, other_classes, 1.0)
    of_others = ops.sum(log_p)[:, 0] - of_label
    return -((1 - smoothing) * of_label + share * of_others)


def top_predictions(
    ops: FittingOps, log_probabilities: Array, labels: Array
) -> tuple[Array, Array]:
    """Return the confidence and the correctness (1 or 0) of each prediction, each (N,)."""
    confidence = ops.exp(ops.max(log_probabilities))[:, 0]
    return confidence, ops.is_top_label(log_probabilities, labels)


def soft_bins(ops: FittingOps, confidence: Array, bins: int, temperature: float) -> Array:
    """Return log u (N, M), u the membership of each confidence in each bin; rows of u sum to 1.

    u_j(c) = softmax_j(−(c − ξ_j)² / T), where ξ_j = (j − ½)/M are the centres of equal-width bins;
    T → 0 gives hard bins. Source: paper 000, section 4.1.
    """
    centres = ops.constant((np.arange(bins) + 0.5) / bins)
    gaps = confidence[:, None] - centres[None, :]
    return ops.log_softmax(-(gaps * gaps) / temperature)


def soft_binned_error(
    ops: FittingOps,
    confidence: Array,
    correct: Array,
    weights: Array,
    bins: int,
    temperature: float,
    order: float,
    variant: Literal["binned", "label_binned"],
) -> Array:
    """Return the calibration error over soft bins of rows (N,) with `weights` of mean 1.

    With u_j(c_i) as in `soft_bins`, S_j = Σ u_j(c_i), C_j = Σ u_j(c_i) c_i / S_j and
    A_j = Σ u_j(c_i) a_i / S_j:

    - `binned`: (Σ_j S_j/N |A_j − C_j|^p)^(1/p);
    - `label_binned`: (1/N Σ_i Σ_j u_j(c_i) |A_j − c_i|^p)^(1/p), never smaller.

    Source: paper 000, eqs. 8 to 12.
    """
    total = soft_binned_power(ops, confidence, correct, weights, bins, temperature, order, variant)
    # The root has no slope at 0; this constant is far below the resolution of any sample.
    return (total + 1e-18) ** (1 / order)


def soft_binned_power(
    ops: FittingOps,
    confidence: Array,
    correct: Array,
    weights: Array,
    bins: int,
    temperature: float,
    order: float,
    variant: Literal["binned", "label_binned"],
) -> Array:
    """Return `soft_binned_error` to the power of p."""
    log_membership = soft_bins(ops, confidence, bins, temperature)
    membership = ops.exp(log_membership) * weights[:, None] / len(confidence)
    # Weights within a bin by softmax, not by division, since a bin's total may underflow.
    responsibilities = ops.softmax((log_membership + ops.log(weights)[:, None]).T)
    accuracy = responsibilities @ correct
    if variant == "binned":
        return (membership.sum(0) * _power(accuracy - responsibilities @ confidence, order)).sum()
    gaps = accuracy[None, :] - confidence[:, None]
    return (membership * _power(gaps, order)).sum()


def soft_bin_sums(
    ops: FittingOps,
    confidence: Array,
    correct: Array,
    weights: Array,
    bins: int,
    temperature: float,
) -> tuple[Array, ...]:
    """Return Σ w u_j of each bin, and the same of u_j a, u_j c and u_j c²; see `soft_bins`."""
    membership = ops.exp(soft_bins(ops, confidence, bins, temperature)) * weights[:, None]
    values = (None, correct, confidence, confidence * confidence)
    return tuple(
        (membership if value is None else membership * value[:, None]).sum(0) for value in values
    )


def soft_binned_error_of_sums(
    sums: tuple[Array, ...],
    rows: float,
    order: float,
    variant: Literal["binned", "label_binned"],
) -> Array:
    """Return `soft_binned_error` from the `soft_bin_sums` of all rows.

    `label_binned` needs order 2, whose terms can be summed before A_j is known.
    """
    total, hits, confidences, squares = sums
    # A bin without rows has no error; 1e-300 is far below the weight of a row.
    accuracy = hits / (total + 1e-300)
    if variant == "binned":
        terms = total * _power(accuracy - confidences / (total + 1e-300), order)
    else:
        terms = squares - 2 * accuracy * confidences + accuracy * hits
    return (terms.sum() / rows + 1e-18) ** (1 / order)


def _power(gaps: Array, order: float) -> Array:
    return gaps * gaps if order == 2 else abs(gaps) ** order
