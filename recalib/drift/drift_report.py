"""What the labels since the onset of a drift say: how wrong, in which direction, and where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.drift.row_groups import Groups, arrange_units, unit_means
from recalib.drift.target import TARGET_NAMES, Target
from recalib.stats.groups import group_sums

#: The rows are selected: the evidence chooses the onset, and the time of the alarm. Intervals of a
#: nominal 99.5% then cover at least 95% (benchmarks/monitoring/README.md).
_NOMINAL_LEVEL = 0.995
#: Places of each kind in a report, and their fewest labels.
_MAX_PLACES, _MIN_LABELS = 2, 10


class DriftGap(NamedTuple):
    """Confidence against accuracy on some labels, and an interval for their difference."""

    labels: int
    accuracy: float
    confidence: float
    low: float
    high: float


class DriftPlace(NamedTuple):
    """The gap of a part of the labels."""

    kind: str
    name: str
    gap: DriftGap


def mean_interval(values: Numbers, least_variance: float = 0.0) -> tuple[float, float]:
    """Return an interval for the mean of (N,) values of selected rows.

    Parameters
    ----------
    least_variance: a lower bound of their variance: few rows may show none.
    """
    mean, spread = float(values.mean()), max(float(values.var()), least_variance)
    width = float(scipy.special.ndtri((1 + _NOMINAL_LEVEL) / 2)) * math.sqrt(spread / len(values))
    return mean - width, mean + width


def measure_gap(confidences: Numbers, outcomes: Numbers, groups: Groups | None = None) -> DriftGap:
    """Return the gap of confidences and outcomes, (N,) each, N at least 1.

    Parameters
    ----------
    groups: of dependent rows (N,), 0 for none; a group counts once, with its means.
    """
    if groups is not None:
        order, sizes = arrange_units(groups)
        confidences = unit_means(confidences[order], sizes)
        outcomes = unit_means(outcomes[order], sizes)
    chance = float((confidences * (1 - confidences)).mean())
    low, high = mean_interval(confidences - outcomes, chance)
    means = float(outcomes.mean()), float(confidences.mean())
    return DriftGap(len(outcomes), *means, max(low, -1.0), min(high, 1.0))


def find_places(
    confidences: Numbers,
    outcomes: Numbers,
    kinds: Mapping[str, tuple[NDArray[Any], Sequence[str]]],
    groups: Groups,
) -> list[DriftPlace]:
    """Return the places with the largest shares of the error, of each kind those that show one.

    Parameters
    ----------
    kinds: the number of the place of each row (N,), and the names of places, by kind.
    groups: of dependent rows, as in `measure_gap`.
    """
    residuals, places = confidences - outcomes, []
    for kind, (numbers, names) in kinds.items():
        numbers = np.asarray(numbers, np.int64)
        shares = np.abs(group_sums(numbers, residuals, len(names)))
        for number in np.argsort(-shares, kind="stable")[:_MAX_PLACES].tolist():
            rows = numbers == number
            if np.count_nonzero(rows) >= _MIN_LABELS:
                gap = measure_gap(confidences[rows], outcomes[rows], groups[rows])
                if gap.low > 0 or gap.high < 0:
                    places.append(DriftPlace(kind, names[number], gap))
    return places


def bin_names(edges: Numbers) -> list[str]:
    """Return the ranges of the bins with these inner edges (B − 1,)."""
    ends = ["0", *(f"{edge:.2g}" for edge in edges), "1"]
    return [f"{low} to {high}" for low, high in pairwise(ends)]


def direction_of(gap: DriftGap) -> str:
    """Return `too_high` or `too_low`, of the confidence; `mixed` if the interval has 0."""
    return "too_high" if gap.low > 0 else "too_low" if gap.high < 0 else "mixed"


def describe_gap(gap: DriftGap, target: Target) -> str:
    """Return direction and size in words: too sure by 7.0 points [4.0, 10.0]."""
    names, direction = TARGET_NAMES[target], direction_of(gap)
    sign = -1 if direction == "too_low" else 1
    points = sign * 100 * (gap.confidence - gap.accuracy)
    low, high = sorted((sign * 100 * gap.low, sign * 100 * gap.high))
    size = f"{points:.1f} points [{low:.1f}, {high:.1f}]"
    if direction == "mixed":
        return f"{names.probability} minus {names.frequency} is {size} in the mean"
    if target == "top_label":
        return f"{'too sure' if direction == 'too_high' else 'not sure enough'} by {size}"
    return f"{names.probability} is too {direction[4:]} by {size}"


def describe_drift(gap: DriftGap, places: Sequence[DriftPlace], since: str, target: Target) -> str:
    """Return the report in one sentence.

    Parameters
    ----------
    since: the time of the onset, in words.
    """
    names = TARGET_NAMES[target]
    text = (
        f"{describe_gap(gap, target)} since {since}: {names.probability} {gap.confidence:.1%}, "
        f"{names.frequency} {gap.accuracy:.1%} on {gap.labels:,} labels"
    )
    kinds = {"bin": names.probability, "class": "predictions of class", "segment": "segment"}
    parts = [
        f"{kinds[place.kind]} {place.name} {describe_gap(place.gap, target)}" for place in places
    ]
    return f"{text}; most: {', '.join(parts)}" if parts else text
