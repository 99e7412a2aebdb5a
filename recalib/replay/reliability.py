"""Reliability before and after a drift, from the sums of cohorts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recalib.drift import CalibrationSums
from recalib.replay.segment_search import accuracy_interval

#: Confidence level of the interval of each bin is 1 minus this.
_ALPHA = 0.05


def reliability_of_periods(
    cohorts: Sequence[tuple[float, CalibrationSums]], onset: float | None
) -> list[dict[str, Any]]:
    """Return the bins with labels of the periods `before` and `after` the onset, or of `all`.

    Each has `period`, mean `confidence`, `accuracy` with the exact interval of 95% (`low`, `high`),
    and `labels`.

    Parameters
    ----------
    cohorts: the end and the sums of each cohort.
    onset: a cohort that ends later is after it.
    """
    periods: dict[str, CalibrationSums] = {}
    for end, sums in cohorts:
        name = "all" if onset is None else ("before", "after")[end > onset]
        periods[name] = periods[name].merge(sums) if name in periods else sums
    return [row for name, sums in periods.items() for row in _bins(name, sums)]


def _bins(period: str, sums: CalibrationSums) -> list[dict[str, Any]]:
    known = sums.weight > 0
    weight, accuracy = sums.weight[known], sums.correct[known] / sums.weight[known]
    # A group of dependent rows counts once, and may be right in part.
    units = np.maximum(np.round(weight), 1).astype(np.int64)
    correct = np.minimum(np.round(sums.correct[known]), units).astype(np.int64)
    low, high = accuracy_interval(correct, units, _ALPHA)
    columns = {
        "confidence": sums.confidence[known] / weight,
        "accuracy": accuracy,
        "low": np.minimum(low, accuracy),
        "high": np.maximum(high, accuracy),
        "labels": sums.labelled[known],
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [{"period": period, **dict(zip(columns, row, strict=True))} for row in rows]
