"""Every objective, row by row in float64, from the equations of the papers.

Slow, and independent of `recalib.objectives` on purpose. Rows are lists of log p; weights
have any scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from tests.metrics.definitions import bin_by_definition, top

__all__ = [
    "DEFINITIONS",
    "binned",
    "class_losses",
    "hard",
    "label_binned_ece",
    "log_softmax",
    "scale",
    "spread",
]

Rows = Sequence[Sequence[float]]
Labels = Sequence[int]
Weights = Sequence[float]


def log_softmax(row: Sequence[float]) -> list[float]:
    """z − max − log Σ exp(z − max), a masked class staying −inf."""
    highest = max(row)
    total = math.fsum(math.exp(z - highest) for z in row)
    return [z - highest - math.log(total) for z in row]


def mean(values: Sequence[float], weights: Weights) -> float:
    return math.fsum(w * v for v, w in zip(values, weights, strict=True)) / math.fsum(weights)


def nll(rows: Rows, labels: Labels, weights: Weights) -> float:
    return mean([-row[y] for row, y in zip(rows, labels, strict=True)], weights)


def focal(rows: Rows, labels: Labels, weights: Weights, gamma: float = 3.0) -> float:
    """Paper 004, eq. 1."""
    picked = [row[y] for row, y in zip(rows, labels, strict=True)]
    return mean([-((1 - math.exp(log_p)) ** gamma) * log_p for log_p in picked], weights)


def label_smoothing(rows: Rows, labels: Labels, weights: Weights, smoothing: float = 0.05) -> float:
    """Cross-entropy with 1 − α on the label, and α/(K − 1) on every other class open to it."""
    values = []
    for row, y in zip(rows, labels, strict=True):
        legal = [k for k in range(len(row)) if row[k] > -math.inf]
        target = {k: smoothing / (len(legal) - 1) for k in legal if k != y}
        target[y] = 1 - smoothing
        values.append(-math.fsum(target[k] * row[k] for k in legal))
    return mean(values, weights)


def brier(rows: Rows, labels: Labels, weights: Weights) -> float:
    values = []
    for row, y in zip(rows, labels, strict=True):
        values.append(math.fsum((math.exp(v) - (k == y)) ** 2 for k, v in enumerate(row)))
    return mean(values, weights)


def confident(rows: Rows, labels: Labels) -> Iterator[tuple[float, float]]:
    for row, y in zip(rows, labels, strict=True):
        yield math.exp(max(row)), float(top(row) == y)


def hard(confidence: float, bins: int) -> list[float]:
    """Membership of a hard bin: 1 in one of them."""
    return [float(j == bin_by_definition(confidence, bins)) for j in range(bins)]


def soft(confidence: float, bins: int, temperature: float) -> list[float]:
    """Paper 000, section 4.1: softmax of −(c − ξ_j)² / T."""
    logs = log_softmax([-((confidence - (j + 0.5) / bins) ** 2) / temperature for j in range(bins)])
    return [math.exp(value) for value in logs]


def binned(
    pairs: Sequence[tuple[float, float]],
    members: Sequence[Sequence[float]],
    weights: Weights,
    order: float,
    variant: str,
) -> float:
    """Paper 000: eqs. 3 to 7 for hard members, eqs. 8 to 12 for soft ones."""
    total = 0.0
    for j in range(len(members[0])):
        u = [w * of_row[j] for w, of_row in zip(weights, members, strict=True)]
        size = math.fsum(u)  # eqs. 3 and 8
        if size == 0:
            continue
        confidence = math.fsum(weight * c for weight, (c, _) in zip(u, pairs, strict=True)) / size
        accuracy = math.fsum(weight * a for weight, (_, a) in zip(u, pairs, strict=True)) / size
        if variant == "binned":  # eqs. 6 and 11
            total += size * abs(accuracy - confidence) ** order
        else:  # eqs. 7 and 12
            total += math.fsum(
                weight * abs(accuracy - c) ** order for weight, (c, _) in zip(u, pairs, strict=True)
            )
    return (total / math.fsum(weights)) ** (1 / order)


def sb_ece(
    rows: Rows,
    labels: Labels,
    weights: Weights,
    bins: int = 15,
    bin_temperature: float = 0.003,
    order: float = 2.0,
    variant: str = "binned",
) -> float:
    pairs = list(confident(rows, labels))
    members = [soft(c, bins, bin_temperature) for c, _ in pairs]
    return binned(pairs, members, weights, order, variant)


def hb_ece(
    rows: Rows, labels: Labels, weights: Weights, bins: int = 15, order: float = 1.0
) -> float:
    pairs = list(confident(rows, labels))
    return binned(pairs, [hard(c, bins) for c, _ in pairs], weights, order, "binned")


def label_binned_ece(
    rows: Rows, labels: Labels, weights: Weights, bins: int = 15, order: float = 1.0
) -> float:
    pairs = list(confident(rows, labels))
    return binned(pairs, [hard(c, bins) for c, _ in pairs], weights, order, "label_binned")


def scale(
    losses: Sequence[float],
    alpha: float,
    beta: float,
    normalisation: str = "nd",
    ddof: int = 0,
    kink: float = 0.0,
) -> list[float]:
    """Paper 003: w of each class by eq. 5, from losses normalised by eq. 4/9, 10 or 11.

    `kink` times the mean is what Recalib adds to a deviation so that equal losses scale nothing;
    the paper adds nothing.
    """
    middle = math.fsum(losses) / len(losses)
    if normalisation == "nd":
        variance = math.fsum((loss - middle) ** 2 for loss in losses) / (len(losses) - ddof)
        centre, width = middle, math.sqrt(variance + (kink * middle) ** 2)
    else:
        centre = min(losses) if normalisation == "mm" else middle
        width = max(losses) - min(losses) + kink * middle
    normalised = [(loss - centre) / width for loss in losses]
    return [beta / (1 + math.exp(-n / alpha)) - beta / 2 for n in normalised]


def class_losses(rows: Rows, labels: Labels, weights: Weights) -> list[float]:
    """Mean −log p(y) of each class that occurs."""
    losses = []
    for k in sorted(set(labels)):
        own = [i for i, y in enumerate(labels) if y == k]
        losses.append(mean([-rows[i][k] for i in own], [weights[i] for i in own]))
    return losses


def classwise_scaled_nll(
    rows: Rows,
    labels: Labels,
    weights: Weights,
    normalisation: str = "nd",
    ddof: int = 0,
    alpha: float = 1.0,
    beta: float = 1.5,
    kink: float = 1e-2,
) -> float:
    """Paper 003, eq. 8, divided by the number of classes that occur."""
    losses = class_losses(rows, labels, weights)
    scales = scale(losses, alpha, beta, normalisation, ddof, kink)
    return math.fsum((1 + w) * loss for w, loss in zip(scales, losses, strict=True)) / len(losses)


def spread(before: Sequence[float], after: Sequence[float], scales: Sequence[float]) -> float:
    """Paper 003, eq. 6, as it is printed."""
    middle = math.fsum(after) / len(after)
    terms = zip(before, after, scales, strict=True)
    return math.sqrt(math.fsum((b - w * (a - b) - middle) ** 2 for b, a, w in terms))


#: By objective name; a test fails if a member of `OBJECTIVES` is missing.
DEFINITIONS: dict[str, Callable[..., float]] = {
    "nll": nll,
    "classwise_scaled_nll": classwise_scaled_nll,
    "brier": brier,
    "sb_ece": sb_ece,
    "hb_ece": hb_ece,
    "ece_grid": hb_ece,
    "label_smoothing": label_smoothing,
    "focal": focal,
}
