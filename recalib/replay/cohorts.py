"""Cohorts of a monitor from the rows of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.drift import CalibrationSums, ClassRows, ClassTraffic, Cohort
from recalib.drift.target import Target
from recalib.replay.columns import LogRows
from recalib.replay.promises import Promises, promised_cohorts
from recalib.stats.groups import group_counts, group_sums


def cohorts_by_segment(
    rows: LogRows, on_time: NDArray[np.bool_], edges: NDArray[np.float64], target: Target
) -> dict[str, Cohort]:
    """Return the cohort of each segment that has rows; "" without segments.

    Parameters
    ----------
    on_time: which rows have a label that counts, (N,).
    edges: inner edges (B - 1,) of the bins of monitored probabilities.
    target: what these are.
    """
    if rows.segment is None:
        return {"": cohort_of_rows(rows, on_time, edges, target)}
    cohorts = {}
    for name in dict.fromkeys(rows.segment.tolist()):
        in_segment = rows.segment == name
        part = rows.select(in_segment)
        cohorts[name] = cohort_of_rows(part, on_time[in_segment], edges, target)
    return cohorts


def cohort_of_rows(
    rows: LogRows, on_time: NDArray[np.bool_], edges: NDArray[np.float64], target: Target
) -> Cohort:
    """Return the cohort of all rows; the arguments are those of `cohorts_by_segment`."""
    probabilities, outcomes = rows.pairs(target)
    traffic = CalibrationSums.empty(edges)
    traffic.add_traffic(probabilities)
    return Cohort(
        traffic.traffic,
        probabilities[on_time],
        outcomes[on_time],
        rows.delay[on_time],
        rows.time[on_time],
        traffic.traffic_confidence,
        groups=None if rows.group is None else rows.group[on_time],
    )


def cohorts_by_promise(
    rows: LogRows, on_time: NDArray[np.bool_], promises: Promises
) -> dict[str, Cohort]:
    """Return the cohort of each promise that the rows can show; see `promised_cohorts`."""
    of_rows: dict[str, Any] = {"times": rows.time, "delays": rows.delay, "groups": rows.group}
    return promised_cohorts(promises, rows.kept, len(rows.time), **of_rows, on_time=on_time)


def class_rows(
    rows: LogRows, on_time: NDArray[np.bool_], classes: tuple[int, ...]
) -> ClassRows | None:
    """Return the labelled rows of the watched classes; None without these.

    A multilabel row counts for the label that it draws.
    """
    if rows.class_rows is not None:
        return rows.class_rows.select(on_time)
    if rows.predicted is None or not classes:
        return None
    used = rows.predicted[on_time], rows.correct[on_time]
    labels = np.where(used[1] == 1, used[0], -1)
    columns = rows.confidence[on_time], used[0], labels, rows.time[on_time]
    groups = None if rows.group is None else rows.group[on_time]
    return ClassRows.from_top_labels(*columns, classes, groups)


def class_traffic(
    rows: LogRows, on_time: NDArray[np.bool_], classes: tuple[int, ...]
) -> ClassTraffic | None:
    """Return the predictions by predicted class; None without watched classes."""
    if rows.predicted is None or not classes:
        return None
    errors = np.maximum(rows.confidence, 1 - rows.confidence)
    size = max(max(classes), int(rows.predicted.max(initial=0))) + 1
    counts = group_counts(rows.predicted, size)
    sums = group_sums(rows.predicted, errors, size)
    watched = list(classes)
    labelled = rows.predicted[on_time], rows.correct[on_time], rows.confidence[on_time]
    return ClassTraffic.from_rows(classes, counts[watched], sums[watched], len(errors), *labelled)
