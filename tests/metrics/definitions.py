"""Every metric, row by row in float64, from the definition in its docstring.

Slow, and independent of `recalib.metrics` on purpose.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, pairwise
from typing import TypeVar

import numpy as np

__all__ = ["DEFINITIONS", "ELSEWHERE", "bin_by_definition"]

Rows = Sequence[Sequence[float]]
T = TypeVar("T")


def bin_by_definition(value: float, bins: int) -> int:
    """The k with k/M < value ≤ (k + 1)/M; 0 is in the first bin."""
    return next(k for k in range(bins) if value <= (k + 1) / bins)


def top(row: Sequence[float]) -> int:
    return max(range(len(row)), key=lambda k: (row[k], -k))


def confident(p: Rows, y: Sequence[int]) -> list[tuple[float, float]]:
    """Confidence and correctness of each row."""
    return [(max(row), float(top(row) == label)) for row, label in zip(p, y, strict=True)]


def accuracy(p: Rows, y: Sequence[int], bins: int) -> float:
    return sum(right for _, right in confident(p, y)) / len(y)


def nll(p: Rows, y: Sequence[int], bins: int) -> float:
    return sum(-math.log(max(row[label], 1e-38)) for row, label in zip(p, y, strict=True)) / len(y)


def brier(p: Rows, y: Sequence[int], bins: int) -> float:
    total = 0.0
    for row, label in zip(p, y, strict=True):
        for k, value in enumerate(row):
            total += (value - (k == label)) ** 2
    return total / len(y)


def gaps(pairs: Sequence[tuple[float, float]], bins: int) -> list[tuple[float, float]]:
    """Share of rows and signed gap of each non-empty equal-width bin."""
    members = defaultdict(list)
    for value, outcome in pairs:
        members[bin_by_definition(value, bins)].append((value, outcome))
    return [weight_and_gap(group, len(pairs)) for group in members.values()]


def weight_and_gap(group: Sequence[tuple[float, float]], rows: int) -> tuple[float, float]:
    mean_value = sum(value for value, _ in group) / len(group)
    frequency = sum(outcome for _, outcome in group) / len(group)
    return len(group) / rows, frequency - mean_value


def ece(p: Rows, y: Sequence[int], bins: int) -> float:
    return sum(weight * abs(gap) for weight, gap in gaps(confident(p, y), bins))


def binary_ece(p: Rows, y: Sequence[int], bins: int) -> float:
    pairs = [(row[1], float(label == 1)) for row, label in zip(p, y, strict=True)]
    return sum(weight * abs(gap) for weight, gap in gaps(pairs, bins))


def roc_auc(p: Rows, y: Sequence[int], bins: int) -> float:
    """The share of pairs of a row of class 1 and one of class 0 in the right order."""
    ones, zeros = ([row[1] for row, label in zip(p, y, strict=True) if label == k] for k in (1, 0))
    wins = sum((a > b) + (a == b) / 2 for a in ones for b in zeros)
    return wins / (len(ones) * len(zeros))


def mce(p: Rows, y: Sequence[int], bins: int) -> float:
    return max(abs(gap) for _, gap in gaps(confident(p, y), bins))


def classwise_ece(p: Rows, y: Sequence[int], bins: int) -> float:
    classes = len(p[0])
    total = 0.0
    for k in range(classes):
        column = [(row[k], float(label == k)) for row, label in zip(p, y, strict=True)]
        total += sum(weight * abs(gap) for weight, gap in gaps(column, bins))
    return total / classes


def split_evenly(rows: Sequence[T], count: int) -> list[list[T]]:
    """Runs as even as possible; NumPy decides which are one longer."""
    return [[rows[i] for i in part] for part in np.array_split(np.arange(len(rows)), count)]


def equal_mass(p: Rows, y: Sequence[int], bins: int) -> list[tuple[float, float]]:
    """Runs of the sorted rows; a row counts with the accuracy of all rows of its confidence."""
    return equal_mass_of(confident(p, y), bins)


def equal_mass_of(rows: Sequence[tuple[float, float]], bins: int) -> list[tuple[float, float]]:
    pairs = sorted(rows)
    tied = defaultdict(list)
    for value, right in pairs:
        tied[value].append(right)
    fair = [(value, sum(tied[value]) / len(tied[value])) for value, _ in pairs]
    count = min(bins, len(fair))
    runs = split_evenly(fair, count)
    assert max(map(len, runs)) - min(map(len, runs)) <= 1
    return [weight_and_gap(run, len(fair)) for run in runs]


def ece_equal_mass(p: Rows, y: Sequence[int], bins: int) -> float:
    return sum(weight * abs(gap) for weight, gap in equal_mass(p, y, bins))


def ece_l2_equal_mass(p: Rows, y: Sequence[int], bins: int) -> float:
    return math.sqrt(sum(weight * gap**2 for weight, gap in equal_mass(p, y, bins)))


def ece_debiased(p: Rows, y: Sequence[int], bins: int) -> float:
    """The mean product of two residuals, over pairs in a bin; bins without a pair left out."""
    if len(y) == 1:
        return ece(p, y, bins)
    members = defaultdict(list)
    for value, right in confident(p, y):
        members[bin_by_definition(value, bins)].append(right - value)
    groups = [group for group in members.values() if len(group) > 1]
    groups = groups or [[r for group in members.values() for r in group]]
    total = 0.0
    for group in groups:
        products = [a * b for a, b in combinations(group, 2)]
        total += len(group) * math.fsum(products) / len(products)
    squared = total / sum(map(len, groups))
    return math.sqrt(squared) if squared > 1e-14 else 0.0


def fair(p: Rows, y: Sequence[int]) -> list[tuple[float, Fraction]]:
    """Rows by confidence, each with the accuracy of all rows of its confidence."""
    pairs = sorted(confident(p, y))
    tied = defaultdict(list)
    for value, right in pairs:
        tied[value].append(int(right))
    return [(value, Fraction(sum(tied[value]), len(tied[value]))) for value, _ in pairs]


def ece_sweep(p: Rows, y: Sequence[int], bins: int) -> float:
    rows = fair(p, y)
    best = [rows]
    for count in range(2, len(rows) + 1):
        runs = split_evenly(rows, count)
        accuracies = [sum(right for _, right in run) / len(run) for run in runs]
        if any(after < before for before, after in pairwise(accuracies)):
            break
        best = runs
    weighed = [weight_and_gap([(v, float(r)) for v, r in run], len(rows)) for run in best]
    return math.sqrt(sum(weight * gap**2 for weight, gap in weighed))


def farthest(pairs: Sequence[tuple[float, float]]) -> float:
    """The largest |mean of outcome − value| over the rows up to each value."""
    tied = defaultdict(list)
    for value, outcome in pairs:
        tied[value].append(outcome - value)
    sums = accumulate(math.fsum(tied[value]) for value in sorted(tied))
    return max(map(abs, sums)) / len(pairs)


def ks_error(p: Rows, y: Sequence[int], bins: int) -> float:
    return farthest(confident(p, y))


def ks_error_classwise(p: Rows, y: Sequence[int], bins: int) -> float:
    total = 0.0
    for k in range(len(p[0])):
        total += farthest([(row[k], float(label == k)) for row, label in zip(p, y, strict=True)])
    return total / len(p[0])


def area(errors: Sequence[float]) -> float:
    """∫ risk(c) dc, with the errors of the most confident rows first.

    Between coverages a and b = a + 1/N, with E errors up to a and e of the next row, risk is
    (E + e·N(c − a))/(N·c), whose integral is e(b − a) + (E/N − e·a) ln(b/a).
    """
    n, total, before = len(errors), 0.0, 0.0
    for i, error in enumerate(errors):
        total += error / n
        if i > 0:
            total += (before - error * i) / n * math.log((i + 1) / i)
        before += error
    return total


def aurc(p: Rows, y: Sequence[int], bins: int) -> float:
    return area([1 - float(right) for _, right in reversed(fair(p, y))])


def e_aurc(p: Rows, y: Sequence[int], bins: int) -> float:
    best = area(sorted(1 - right for _, right in confident(p, y)))
    return aurc(p, y, bins) - best


def brier_reliability(p: Rows, y: Sequence[int], bins: int) -> float:
    return sum(weight * gap**2 for weight, gap in gaps(confident(p, y), bins))


def brier_resolution(p: Rows, y: Sequence[int], bins: int) -> float:
    members = defaultdict(list)
    for value, right in confident(p, y):
        members[bin_by_definition(value, bins)].append(right)
    overall = accuracy(p, y, bins)
    return sum(
        len(group) / len(y) * (sum(group) / len(group) - overall) ** 2 for group in members.values()
    )


def brier_uncertainty(p: Rows, y: Sequence[int], bins: int) -> float:
    overall = accuracy(p, y, bins)
    return sum((right - overall) ** 2 for _, right in confident(p, y)) / len(y)


def top5_accuracy(p: Rows, y: Sequence[int], bins: int) -> float:
    result = 0
    for row, label in zip(p, y, strict=True):
        ranked = sorted(range(len(row)), key=lambda k: (-row[k], k))
        result += label in ranked[:5]
    return result / len(y)


def top5_ece(p: Rows, y: Sequence[int], bins: int) -> float:
    return top_k_ece(p, y, bins, 5)


def top_k_ece(p: Rows, y: Sequence[int], bins: int, count: int) -> float:
    pairs = []
    for row, label in zip(p, y, strict=True):
        ranked = sorted(range(len(row)), key=lambda k: (-row[k], k))[:count]
        pairs.append((min(1.0, math.fsum(row[k] for k in ranked)), float(label in ranked)))
    return sum(weight * abs(gap) for weight, gap in gaps(pairs, bins))


def ece_l2(p: Rows, y: Sequence[int], bins: int) -> float:
    return math.sqrt(sum(weight * gap**2 for weight, gap in gaps(confident(p, y), bins)))


def ece_label_binned(p: Rows, y: Sequence[int], bins: int) -> float:
    members = defaultdict(list)
    for value, right in confident(p, y):
        members[bin_by_definition(value, bins)].append((value, right))
    total = 0.0
    for group in members.values():
        accuracy = sum(right for _, right in group) / len(group)
        total += sum(abs(accuracy - value) for value, _ in group)
    return total / len(y)


def columns(p: Rows, y: Sequence[int]) -> list[list[tuple[float, float]]]:
    """Probability and outcome of each row, by class."""
    return [
        [(row[k], float(label == k)) for row, label in zip(p, y, strict=True)]
        for k in range(len(p[0]))
    ]


def classwise_ece_equal_mass(p: Rows, y: Sequence[int], bins: int) -> float:
    """Each class as a binary problem with its probability as confidence."""
    total = 0.0
    for column in columns(p, y):
        weighed = equal_mass_of(column, bins)
        total += sum(weight * abs(gap) for weight, gap in weighed)
    return total / len(p[0])


def marginal_ece_l2(p: Rows, y: Sequence[int], bins: int) -> float:
    squares = [weight * gap**2 for column in columns(p, y) for weight, gap in gaps(column, bins)]
    return math.sqrt(sum(squares) / len(p[0]))


def pair_mean(residuals: Sequence[float]) -> float:
    """The mean over rows of a residual times the mean of the others."""
    total, others = math.fsum(residuals), len(residuals) - 1
    return math.fsum(r * (total - r) / others for r in residuals) / len(residuals)


def joined(members: dict[int, list[float]], bins: int) -> list[list[float]]:
    """Residuals of joined bins: downwards until there are two rows; the rest joins the last."""
    groups: list[list[float]] = [[]]
    for b in range(bins - 1, -1, -1):
        if len(groups[-1]) > 1:
            groups.append([])
        groups[-1] = groups[-1] + members.get(b, [])
    if len(groups) > 1 and len(groups[-1]) < 2:
        rest = groups.pop()
        groups[-1] = groups[-1] + rest
    return groups


def classwise_ce(p: Rows, y: Sequence[int], bins: int) -> float:
    """The mean over classes and rows of the products of residuals in joined bins."""
    if len(y) == 1:
        return marginal_ece_l2(p, y, bins)
    total = 0.0
    for column in columns(p, y):
        members = defaultdict(list)
        for value, occurred in column:
            members[bin_by_definition(value, bins)].append(occurred - value)
        total += math.fsum(len(group) * pair_mean(group) for group in joined(members, bins))
    squared = total / len(y) / len(p[0])
    return math.sqrt(squared) if squared > 1e-14 else 0.0


def s99(p: Rows, y: Sequence[int], bins: int) -> float:
    return sum(value > 0.99 for value, _ in confident(p, y)) / len(y)


def s99_accuracy(p: Rows, y: Sequence[int], bins: int) -> float:
    sure = [right for value, right in confident(p, y) if value > 0.99]
    return sum(sure) / len(sure)


def mean_confidence(p: Rows, y: Sequence[int], bins: int) -> float:
    return math.fsum(max(row) for row in p) / len(y)


def marginal_sb_ece(p: Rows, y: Sequence[int], bins: int) -> float:
    """Bin by bin; a membership is 1 over the sum of the ratios of all bins to its own."""
    centres = [(j + 0.5) / bins for j in range(bins)]
    total = 0.0
    for k in range(len(p[0])):
        pairs = [(row[k], float(label == k)) for row, label in zip(p, y, strict=True)]
        for centre in centres:
            members = []
            for value, outcome in pairs:
                nearer = [((value - centre) ** 2 - (value - c) ** 2) / 0.003 for c in centres]
                members.append((1 / math.fsum(map(math.exp, nearer)), value, outcome))
            mass = math.fsum(u for u, _, _ in members)
            gap = math.fsum(u * (outcome - value) for u, value, outcome in members)
            total += gap**2 / mass / len(y) if mass > 0 else 0.0
    return math.sqrt(total / len(p[0]))


def mean_entropy(p: Rows, y: Sequence[int], bins: int) -> float:
    return -math.fsum(q * math.log(q) for row in p for q in row if q > 0) / len(y)


def classwise_loss_std(p: Rows, y: Sequence[int], bins: int) -> float:
    losses = defaultdict(list)
    for row, label in zip(p, y, strict=True):
        losses[label].append(-math.log(max(row[label], 1e-38)))
    return statistics.pstdev([math.fsum(of) / len(of) for of in losses.values()])


#: By metric name; `ZeroDivisionError` where no row counts. A test fails if a member of `METRICS` is
#: missing.
DEFINITIONS: dict[str, Callable[[Rows, Sequence[int], int], float]] = {
    "accuracy": accuracy,
    "top5_accuracy": top5_accuracy,
    "roc_auc": roc_auc,
    "nll": nll,
    "brier": brier,
    "binary_ece": binary_ece,
    "ece": ece,
    "top5_ece": top5_ece,
    "ece_equal_mass": ece_equal_mass,
    "ece_l2": ece_l2,
    "ece_l2_equal_mass": ece_l2_equal_mass,
    "ece_label_binned": ece_label_binned,
    "ece_debiased": ece_debiased,
    "ece_sweep": ece_sweep,
    "ks_error": ks_error,
    "mce": mce,
    "classwise_ce": classwise_ce,
    "classwise_ece": classwise_ece,
    "classwise_ece_equal_mass": classwise_ece_equal_mass,
    "marginal_ece_l2": marginal_ece_l2,
    "marginal_sb_ece": marginal_sb_ece,
    "ks_error_classwise": ks_error_classwise,
    "aurc": aurc,
    "e_aurc": e_aurc,
    "brier_reliability": brier_reliability,
    "brier_resolution": brier_resolution,
    "brier_uncertainty": brier_uncertainty,
    "s99": s99,
    "s99_accuracy": s99_accuracy,
    "mean_confidence": mean_confidence,
    "mean_entropy": mean_entropy,
    "classwise_loss_std": classwise_loss_std,
}

#: Metrics with integrals or N² kernels, and the test that defines them again.
ELSEWHERE = {
    "smooth_ece": "test_smooth_ece.py",
    "ece_kde": "test_ece_kde.py",
    "ece_kde_classwise": "test_ece_kde.py",
    "ece_kde_canonical": "test_ece_kde.py",
}
