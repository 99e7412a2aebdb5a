"""Every loss once more, row by row in float64, from the equations of the papers.

Slow, and sharing nothing with `recalib.losses` on purpose. `rows` are lists of logits; every
function returns the mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import scipy.special

__all__ = ["DEFINITIONS", "g", "softmax"]

Rows = Sequence[Sequence[float]]
Labels = Sequence[int]


def softmax(row: Sequence[float]) -> list[float]:
    highest = max(row)
    total = math.fsum(math.exp(z - highest) for z in row)
    return [math.exp(z - highest) / total for z in row]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def of_label(rows: Rows, labels: Labels) -> list[float]:
    return [softmax(row)[y] for row, y in zip(rows, labels, strict=True)]


def top(rows: Rows, labels: Labels) -> list[tuple[float, float]]:
    """Confidence and correctness of each row."""
    pairs = []
    for row, y in zip(rows, labels, strict=True):
        p = softmax(row)
        pairs.append((max(p), float(p.index(max(p)) == y)))
    return pairs


def g(p: float, gamma: float) -> float:
    """Paper 004, proposition 1."""
    return (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)


def cross_entropy(rows: Rows, labels: Labels) -> float:
    return mean([-math.log(p) for p in of_label(rows, labels)])


def label_smoothing(rows: Rows, labels: Labels, smoothing: float = 0.05) -> float:
    values = []
    for row, y in zip(rows, labels, strict=True):
        k = len(row)
        target = [1 - smoothing if j == y else smoothing / (k - 1) for j in range(k)]
        values.append(
            -math.fsum(t * math.log(p) for t, p in zip(target, softmax(row), strict=True))
        )
    return mean(values)


def brier(rows: Rows, labels: Labels) -> float:
    return mean(
        [
            math.fsum((p - (j == y)) ** 2 for j, p in enumerate(softmax(row)))
            for row, y in zip(rows, labels, strict=True)
        ]
    )


def focal(rows: Rows, labels: Labels, gamma: float = 3.0) -> float:
    return mean([-((1 - p) ** gamma) * math.log(p) for p in of_label(rows, labels)])


def focal_scheduled(rows: Rows, labels: Labels) -> float:
    return focal(rows, labels, 5.0)  # as long as no epoch has been announced


def focal_sample_dependent(rows: Rows, labels: Labels) -> float:
    return mean([-((1 - p) ** (5 if p < 0.2 else 3)) * math.log(p) for p in of_label(rows, labels)])


def inverse_focal(rows: Rows, labels: Labels, gamma: float = 2.0) -> float:
    return mean([-((1 + p) ** gamma) * math.log(p) for p in of_label(rows, labels)])


def dual_focal(rows: Rows, labels: Labels, gamma: float = 5.0, released: bool = False) -> float:
    """Paper 002, eq. 24; eqs. 25 and 26."""
    values = []
    for row, y in zip(rows, labels, strict=True):
        p = softmax(row)
        rival = max(p[:y] + p[y + 1 :])
        lead = 0.0 if released and p[y] < rival else rival
        values.append(-((1 - p[y] + lead) ** gamma) * math.log(p[y]))
    return mean(values)


def dual_focal_released(rows: Rows, labels: Labels) -> float:
    return dual_focal(rows, labels, released=True)


def entropy(row: Sequence[float]) -> float:
    return -math.fsum(p * math.log(p) for p in softmax(row) if p > 0)


def entropy_penalty(rows: Rows, labels: Labels) -> float:
    return mean([-entropy(row) for row in rows])


def mmce(
    rows: Rows,
    labels: Labels,
    width: float = 0.4,
    weighted: bool = False,
    variant: str = "paper",
) -> float:
    pairs = top(rows, labels)
    if variant == "released" and weighted:
        return mmce_weighted_released(pairs, width)
    right = sum(a for _, a in pairs)
    total = 0.0
    for c, a in pairs:
        for other, b in pairs:
            term = (a - c) * (b - other) * math.exp(-abs(c - other) / width)
            if weighted:
                term /= (right if a else len(pairs) - right) * (right if b else len(pairs) - right)
            else:
                term /= len(pairs) ** 2
            total += term
    return total if variant == "released" else math.sqrt(total)


def mmce_weighted_released(pairs: Sequence[tuple[float, float]], width: float) -> float:
    """Code of paper 004: three means over pairs, each divided by its number of pairs again."""
    right = [1 - c for c, a in pairs if a]
    wrong = [c for c, a in pairs if not a]
    if not right or not wrong:
        return 0.0

    def term(one: Sequence[float], other: Sequence[float], is_mixed: bool) -> float:
        count = len(one) * len(other)
        products = [
            x * y * math.exp(-abs(1 - x - y if is_mixed else x - y) / width)
            for x in one
            for y in other
        ]
        return mean(products) / (count + 1e-5)

    square = term(right, right, False) + term(wrong, wrong, False) - 2 * term(right, wrong, True)
    return math.sqrt(square + 1e-10)


def mixture_entropy(row: Sequence[float], variant: str) -> float:
    """Of the softmax; in the code of paper 000 with a share of 1e-5 of the uniform distribution."""
    share = 1e-5 if variant == "released" else 0.0
    mixture = [(1 - share) * p + share / len(row) for p in softmax(row)]
    return -math.fsum(p * math.log(p) for p in mixture if p > 0)


def avuc(rows: Rows, labels: Labels, kappa: float = 0.5, variant: str = "paper") -> float:
    """Paper 000, eqs. 13 and 14."""
    n = {"AU": 0.0, "IC": 0.0, "AC": 0.0, "IU": 0.0}
    for row, (c, a) in zip(rows, top(rows, labels), strict=True):
        h = mixture_entropy(row, variant)
        if h > kappa * math.log(len(row)):
            n["AU" if a else "IU"] += (c if a else 1 - c) * math.tanh(h)
        else:
            n["AC" if a else "IC"] += (c if a else 1 - c) * (1 - math.tanh(h))
    if variant == "released":
        return math.log(1 + (n["AU"] + n["IC"]) / max(n["AC"] + n["IU"], 1e-5))
    # 1e-10 of our own in both sums: a small batch may have nothing in one of them.
    return math.log(1 + (n["AU"] + n["IC"] + 1e-10) / (n["AC"] + n["IU"] + 1e-10))


def s_avuc(
    rows: Rows,
    labels: Labels,
    kappa: float = 0.5,
    temperature: float = 1.0,
    variant: str = "paper",
) -> float:
    """Paper 000, eqs. 15 and 16."""
    n = {"AU": 0.0, "IC": 0.0, "AC": 0.0, "IU": 0.0}
    for row, (_, a) in zip(rows, top(rows, labels), strict=True):
        h = mixture_entropy(row, variant)
        share = h / math.log(len(row))
        odds = math.log(share * (1 - kappa) / ((1 - share) * kappa))
        t = 1 / (1 + math.exp(-odds / temperature))
        n["AU" if a else "IU"] += t * math.tanh(h)
        n["AC" if a else "IC"] += (1 - t) * (1 - math.tanh(h))
    least = 1e-5 if variant == "released" else 0.0
    return math.log(1 + (n["AU"] + n["IC"]) / max(n["AC"] + n["IU"], least))


def sb_ece(
    rows: Rows,
    labels: Labels,
    bins: int = 15,
    temperature: float = 0.01,
    order: float = 2.0,
    variant: str = "label_binned",
) -> float:
    """Paper 000, eqs. 8 to 12."""
    pairs = top(rows, labels)
    if variant == "released":
        return sb_ece_released(pairs, 1 / len(rows[0]), bins, temperature, order)
    u = [
        softmax([-((c - (j + 0.5) / bins) ** 2) / temperature for j in range(bins)])
        for c, _ in pairs
    ]
    total = 0.0
    for j in range(bins):
        size = math.fsum(row[j] for row in u)
        if size == 0:
            continue
        confidence = math.fsum(row[j] * c for row, (c, _) in zip(u, pairs, strict=True)) / size
        accuracy = math.fsum(row[j] * a for row, (_, a) in zip(u, pairs, strict=True)) / size
        if variant == "binned":
            total += size * abs(accuracy - confidence) ** order
        else:
            total += math.fsum(
                row[j] * abs(accuracy - c) ** order for row, (c, _) in zip(u, pairs, strict=True)
            )
    return (total / len(pairs)) ** (1 / order)


def sb_ece_released(
    pairs: Sequence[tuple[float, float]], low: float, bins: int, temperature: float, order: float
) -> float:
    """Code of paper 000: squares of differences, in bins over [1/K, 1], without a root."""
    edges = [low + (1 - low) * j / bins for j in range(bins + 1)]
    shares = []
    for c, _ in pairs:
        near = [math.exp(-(((a + b) / 2 - c) ** 2) / temperature) for a, b in pairwise(edges)]
        shares.append([(1 - 1e-5) * w / math.fsum(near) + 1e-5 / bins for w in near])
    total = 0.0
    for j in range(bins):
        size = math.fsum(row[j] for row in shares)
        right = math.fsum(row[j] * a for row, (_, a) in zip(shares, pairs, strict=True)) / size
        total += math.fsum(
            row[j] * abs(right - c) ** order for row, (c, _) in zip(shares, pairs, strict=True)
        )
    return total / len(pairs)


def mdca(rows: Rows, labels: Labels) -> float:
    """Paper 001, S1.3, eq. 9."""
    p = [softmax(row) for row in rows]
    return math.fsum(
        abs(math.fsum(row[k] for row in p) - list(labels).count(k)) / len(rows)
        for k in range(len(rows[0]))
    )


def cpc(rows: Rows, labels: Labels, lambda1: float = 1.0, lambda2: float = 1.0) -> float:
    """Paper 001, S1.2, eqs. 2 to 4."""
    values = []
    for row, y in zip(rows, labels, strict=True):
        p = softmax(row)
        other_classes = [k for k in range(len(p)) if k != y]
        one_to_one = -math.fsum(math.log(p[y] / (p[y] + p[k])) for k in other_classes)
        binary = -math.fsum(
            math.log(p[k] / (p[k] + p[m])) + math.log(p[m] / (p[k] + p[m]))
            for k in other_classes
            for m in other_classes
        )
        values.append(lambda1 * one_to_one + lambda2 * binary)
    return mean(values)


def mbls(rows: Rows, labels: Labels, margin: float = 10.0) -> float:
    """Paper 001, S1.4, eq. 14."""
    return mean([math.fsum(max(0.0, max(row) - z - margin) for z in row) for row in rows])


def acls(
    rows: Rows,
    labels: Labels,
    lambda1: float | None = None,
    lambda2: float | None = None,
    margin: float = 10.0,
    variant: str = "loss",
) -> float:
    """Paper 001, eq. 13; as released, a mean over the other classes."""
    if lambda1 is None:
        lambda1 = 0.1 if variant == "released" else min(0.1, 1 / (len(rows[0]) - 1))
    values = []
    for row in rows:
        place = list(row).index(max(row))
        low = 0.0 if variant == "released" else min(row)
        squares = [max(0.0, row[place] - z - margin) ** 2 for j, z in enumerate(row) if j != place]
        if variant == "released":
            factor = (0.01 if lambda2 is None else lambda2) / len(squares)
        else:
            factor = 0.01 / (len(row) - 1) if lambda2 is None else lambda2
        values.append(
            lambda1 * max(0.0, row[place] - low - margin) ** 2 + factor * math.fsum(squares)
        )
    return mean(values)


def kde_ece(
    rows: Rows, labels: Labels, bandwidth: float = 0.1, variant: str = "canonical"
) -> float:
    """Densities by SciPy, compared as logarithms."""
    if len(rows) == 1:
        return 0.0
    if variant == "top_label":
        pairs = top(rows, labels)
        points = [[c, 1 - c] for c, _ in pairs]
        outcomes = [[a] for _, a in pairs]
    else:
        points = [softmax(row) for row in rows]
        outcomes = [[float(k == y) for k in range(len(rows[0]))] for y in labels]
    values = []
    for j, point in enumerate(points):
        other_points = [i for i in range(len(points)) if i != j]
        logs = []
        for i in other_points:
            alpha = [p / bandwidth + 1 for p in points[i]]
            # The density at what is a probability vector but for the last digit.
            beta = math.fsum(map(math.lgamma, alpha)) - math.lgamma(math.fsum(alpha))
            logs.append(
                math.fsum(scipy.special.xlogy(a - 1, p) for a, p in zip(alpha, point, strict=True))
                - beta
            )
        share = softmax(logs)
        near = [
            math.fsum(w * outcomes[i][k] for w, i in zip(share, other_points, strict=True))
            for k in range(len(outcomes[0]))
        ]
        values.append(math.fsum(abs(m - p) for m, p in zip(near, point, strict=False)))
    return mean(values)


def confidence_score(row: Sequence[float], kind: str) -> float:
    p = sorted(softmax(row), reverse=True)
    return {"msp": p[0], "margin": p[0] - p[1], "negative_entropy": -entropy(row)}[kind]


def aurc(rows: Rows, labels: Labels, confidence: str = "msp") -> float:
    """The mean of the mean losses of the n most confident rows."""
    losses = [-math.log(p) for p in of_label(rows, labels)]
    order = sorted(range(len(rows)), key=lambda i: -confidence_score(rows[i], confidence))
    return mean([mean([losses[i] for i in order[:n]]) for n in range(1, len(rows) + 1)])


def selective_risk(
    rows: Rows,
    labels: Labels,
    coverage: float = 0.9,
    nu: float = 0.1,
    confidence: str = "msp",
    bins: int = 15,
) -> float:
    """Paper 002, eqs. 13 to 17."""
    scores = [confidence_score(row, confidence) for row in rows]
    losses = [-math.log(p) for p in of_label(rows, labels)]
    low, high = (-math.log(len(rows[0])), 0.0) if confidence == "negative_entropy" else (0.0, 1.0)
    edges = [low + (high - low) * k / bins for k in range(bins + 1)]
    counts = [0] * bins
    for score in scores:
        inside = [k for k in range(bins) if edges[k] <= score < edges[k + 1]]
        counts[inside[0] if inside else bins - 1] += 1

    def distribution(at: float) -> float:
        return math.fsum(
            h * scipy.special.expit((at - (edges[k] + edges[k + 1]) / 2) / nu)
            for k, h in enumerate(counts)
        ) / len(rows)

    below = min(int(coverage * len(rows)), len(rows) - 1)
    threshold = sorted(scores)[below]
    return mean(
        [
            -math.log(1 - distribution(min(score, threshold))) * loss
            for score, loss in zip(scores, losses, strict=True)
        ]
    )


DEFINITIONS: dict[str, Callable[..., float]] = {
    "cross_entropy": cross_entropy,
    "label_smoothing": label_smoothing,
    "brier": brier,
    "focal": focal,
    "focal_scheduled": focal_scheduled,
    "focal_sample_dependent": focal_sample_dependent,
    "inverse_focal": inverse_focal,
    "dual_focal": dual_focal,
    "dual_focal_released": dual_focal_released,
    "entropy_penalty": entropy_penalty,
    "mmce": mmce,
    "avuc": avuc,
    "avuc_gs": avuc,
    "s_avuc": s_avuc,
    "sb_ece": sb_ece,
    "mdca": mdca,
    "cpc": cpc,
    "mbls": mbls,
    "acls": acls,
    "kde_ece": kde_ece,
    "aurc": aurc,
    "selective_risk": selective_risk,
}
