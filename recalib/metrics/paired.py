"""Paired comparison: how metrics change from one prediction to another of the same rows.

Legend: N rows, K classes, G groups of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.metrics import METRICS, Estimate, Metric, Predictions, State, StreamingMetric
from recalib.metrics.base import Better, defined

__all__ = [
    "GROUPS",
    "Change",
    "Verdict",
    "change_of",
    "have_intervals",
    "paired_changes",
    "verdict_of",
]

#: G: groups of rows that the jackknife leaves out in turn.
GROUPS = 20

#: What an interval says: all of it is better, all of it is worse, or it holds 0; `none` for a
#: metric such as `mean_confidence`, which is good neither high nor low.
Verdict = Literal["better", "worse", "unclear", "equal", "none"]


@dataclass(frozen=True)
class Change:
    """The value of a metric after, minus that before, with its interval."""

    value: float
    low: float
    high: float
    verdict: Verdict


def paired_changes(
    before: Predictions,
    after: Predictions,
    estimates_before: Mapping[str, Estimate],
    estimates_after: Mapping[str, Estimate],
    *,
    bins: int = 15,
    level: float = 0.95,
) -> dict[str, Change]:
    """Return the change of each metric that has intervals, with an interval of `level`.

    A metric that is not defined without some group of rows is left out.

    The rows are split into G = 20 random groups, and each group is left out in turn (the
    delete-a-group jackknife). The two predictions of a row stay together, so noise that both share
    cancels: the interval is usually much narrower than the intervals of the two values suggest.

    With d the change, [l, u] the intervals of the values v before and after, and r the correlation
    of the two values over the G samples without a group, the interval is

        from d − √((v_a − l_a)² + (u_b − v_b)² − 2r(v_a − l_a)(u_b − v_b))
        to   d + √((u_a − v_a)² + (v_b − l_b)² − 2r(u_a − v_a)(v_b − l_b))

    So it allows for what the intervals of the values allow for: a calibration error counts noise as
    error, and a fraction may rest on few rows. A positive r does not narrow the interval of a
    calibration error that may be 0 before or after: the signs of its gaps are then chance, and so
    is r. A metric without a noise floor is nearly normal, and
    its interval is at least d ± t·s, with s² = (G − 1)/G · Σ_g (d_g − d̄)² over the changes d_g
    without a group, and Student's t for G − 1 degrees of freedom.

    Parameters
    ----------
    before, after: two predictions of the same N rows with the same labels; N >= 2.
    estimates_before: the metrics of `before`, measured with `level`.
    estimates_after: the same metrics of `after`.
    bins: the number of bins of binned metrics, as for the estimates.

    Raises
    ------
    InputError: fewer than two rows, or labels that differ.

    Source: Kott, The delete-a-group jackknife, Journal of Official Statistics 17, 2001; Zou and
    Donner, Construction of confidence limits about effect measures, Statistics in Medicine 27,
    2008, eq. 2 with correlation.
    """
    if not np.array_equal(before.labels, after.labels):
        raise InputError("after", found="other labels", accepted="the rows and labels of `before`")
    if len(before) < 2:
        raise InputError("before", found=f"{len(before)} rows", accepted="at least two rows")
    metrics = {
        name: METRICS[name](bins)
        for name in estimates_after
        if have_intervals(name, estimates_before, estimates_after)
    }
    groups = _random_groups(len(before))
    values_before, values_after = (
        _without_each_group(metrics, predictions, groups) for predictions in (before, after)
    )
    return {
        name: change_of(
            name,
            (estimates_before[name], estimates_after[name]),
            np.stack([values_before[name], values_after[name]]),
            level,
        )
        for name in metrics
        if name in values_before and name in values_after
    }


def have_intervals(name: str, *sides: Mapping[str, Estimate]) -> bool:
    """Return whether all have the metric with an interval."""
    return all(name in side and side[name].low is not None for side in sides)


def change_of(
    name: str,
    estimates: tuple[Estimate, Estimate],
    replicates: NDArray[np.float64],
    level: float,
) -> Change:
    """Return the change of a metric, see `paired_changes`.

    Parameters
    ----------
    name: of the metric.
    estimates: before and after, with intervals.
    replicates: (2, G), its values before and after without each group.
    level: of the interval.
    """
    before, after = estimates
    value = after.value - before.value
    differences = replicates[1] - replicates[0]
    if before == after and not np.any(differences):
        return Change(0.0, 0.0, 0.0, "equal")
    correlation = _correlation(replicates)
    if after.floor is not None and min(before.low or 0.0, after.low or 0.0) <= 0:
        correlation = min(correlation, 0.0)
    below = _joint(_below(after), _above(before), correlation)
    above = _joint(_above(after), _below(before), correlation)
    if after.floor is None:
        count = len(differences)
        error = np.sqrt((count - 1) * differences.var())
        reach = float(scipy.special.stdtrit(count - 1, (1 + level) / 2) * error)
        below, above = max(below, reach), max(above, reach)
    low, high = value - below, value + above
    return Change(value, low, high, verdict_of(METRICS[name].better, low, high))


def _below(estimate: Estimate) -> float:
    return 0.0 if estimate.low is None else estimate.value - estimate.low


def _above(estimate: Estimate) -> float:
    return 0.0 if estimate.high is None else estimate.high - estimate.value


def _joint(first: float, second: float, correlation: float) -> float:
    return float(np.sqrt(max(first**2 + second**2 - 2 * correlation * first * second, 0.0)))


def _correlation(replicates: NDArray[np.float64]) -> float:
    centred = replicates - replicates.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.prod((centred**2).sum(axis=1)))
    return float(centred[0] @ centred[1] / scale) if scale > 0 else 0.0


def verdict_of(better: Better | None, low: float, high: float) -> Verdict:
    """Return what the interval of a change says of a metric."""
    if better is None:
        return "none"
    if low <= 0 <= high:
        return "unclear"
    return "better" if (high < 0) == (better == "lower") else "worse"


def _random_groups(rows: int) -> list[NDArray[np.intp]]:
    """Return the rows of each group; random, because files may be sorted."""
    order = np.random.default_rng(0).permutation(rows)
    return [np.sort(group) for group in np.array_split(order, min(GROUPS, rows))]


def _without_each_group(
    metrics: Mapping[str, Metric], predictions: Predictions, groups: list[NDArray[np.intp]]
) -> dict[str, NDArray[np.float64]]:
    """Return the values (G,) of each metric on the rows outside each group.

    States of groups are merged, so that a metric with a state reads each row once. A metric that is
    not defined without some group is left out.
    """
    streaming = {
        name: metric
        for name, metric in metrics.items()
        if isinstance(metric, StreamingMetric) and metric.reads_state
    }
    kinds = {metric.state_kind: metric for metric in streaming.values()}
    states: dict[str, list[State]] = {kind: [] for kind in kinds}
    for group in groups:
        rows = predictions.take(group)
        for kind, metric in kinds.items():
            state = metric.state(predictions.classes)
            metric.add(state, rows)
            states[kind].append(state)
    others = {kind: _merged_without_each(parts) for kind, parts in states.items()}
    of_rows = {name: metric for name, metric in metrics.items() if name not in streaming}
    parts = []
    for number, group in enumerate(groups):
        parts.append(_of_states(streaming, {kind: left[number] for kind, left in others.items()}))
        if of_rows:
            rows = predictions.take(np.delete(np.arange(len(predictions)), group))
            parts[-1] |= _of_rows(of_rows, rows)
    return {
        name: np.array([part[name].value for part in parts])
        for name in metrics
        if all(name in part for part in parts)
    }


def _of_states(
    metrics: Mapping[str, StreamingMetric[Any]], states: Mapping[str, State]
) -> dict[str, Estimate]:
    return defined(metrics, lambda metric: metric.estimate(states[metric.state_kind]))


def _of_rows(metrics: Mapping[str, Metric], rows: Predictions) -> dict[str, Estimate]:
    return defined(metrics, lambda metric: metric.measure(rows))


def _merged_without_each(states: list[State]) -> list[State]:
    """Return for each of two or more states the merge of all others, in 3 merges for each."""
    before = list(accumulate(states[:-1], State.merge))
    after = list(accumulate(states[:0:-1], State.merge))[::-1]
    middle = [first.merge(second) for first, second in zip(before, after[1:], strict=False)]
    return [after[0], *middle, before[-1]]
