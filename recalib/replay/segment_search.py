"""Search for segments of a log whose accuracy is not near their confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.replay.log import Log
from recalib.replay.splits import Split
from recalib.replay.survey import Survey
from recalib.stats.groups import group_counts, group_sums

Values = NDArray[np.float64]
Counts = NDArray[np.int64]

#: Fewest labels of a segment that is tried: below, no realistic error can be shown.
_MIN_LABELS = 20
#: Largest number of segments that are listed.
_MAX_LISTED = 20


@dataclass(frozen=True)
class SegmentGap:
    """Mean accuracy minus mean confidence of a segment, with its interval."""

    column: str
    #: The value of the column, or the range of its values.
    value: str
    predictions: int
    labels: int
    #: Means over the labelled predictions.
    accuracy: float
    confidence: float
    gap: float
    #: The interval of the gap, simultaneous over all segments tried.
    low: float
    high: float
    #: Whether the whole interval is further from 0 than the tolerance.
    exceeds_tolerance: bool

    @property
    def certain_gap(self) -> float:
        """The smallest `|gap|` of the interval; negative if the interval contains 0."""
        return max(self.low, -self.high)


@dataclass(frozen=True)
class SegmentSearch:
    """The segments of a log by the values of some columns, the worst first.

    If accuracy is within the tolerance of confidence in every segment tried, any of them exceeds
    it with a probability of at most `alpha`, provided that outcomes are independent given the
    confidences and the columns.
    """

    columns: list[str]
    alpha: float
    tolerance: float
    #: Number of segments tried, and of those with too few labels.
    tried: int
    too_small: int
    #: All labels that have matured, with accuracy minus confidence.
    labels: int
    gap: float | None
    #: Number of segments whose interval is beyond the tolerance.
    exceeding: int
    #: The worst 20.
    segments: list[SegmentGap]

    @property
    def worst(self) -> SegmentGap | None:
        """The segment with the largest `certain_gap`, None if none was tried."""
        return self.segments[0] if self.segments else None

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            **asdict(self),
            "worst": None if self.worst is None else asdict(self.worst),
        }


def accuracy_interval(correct: Counts, labels: Counts, alpha: float) -> tuple[Values, Values]:
    """Return the Clopper-Pearson interval of mean accuracy, (G,) each.

    It also holds for independent rows of different accuracies: the tails of their sum are lighter
    than those of a binomial variable of the same mean (Hoeffding, On the distribution of the number
    of successes in independent trials, 1956, theorem 4).

    Parameters
    ----------
    correct: number of correct rows, (G,).
    labels: number of rows, (G,), at least 1.
    alpha: probability of an interval that misses the mean.
    """
    # The function is NaN where a parameter is 0; the bound is then 0 or 1.
    low = scipy.special.betaincinv(np.maximum(correct, 1), labels - correct + 1, alpha / 2)
    high = scipy.special.betaincinv(correct + 1, np.maximum(labels - correct, 1), 1 - alpha / 2)
    return np.where(correct == 0, 0.0, low), np.where(correct == labels, 1.0, high)


def search_segments(
    log: Log,
    survey: Survey,
    splits: Sequence[Split],
    horizon: float,
    *,
    alpha: float,
    tolerance: float,
) -> SegmentSearch:
    """Try each value, or range of values, of each column as a segment.

    Only predictions that have matured count, and labels that came within the horizon. The log is
    read twice more.

    Parameters
    ----------
    splits: of the columns that the log was opened with.
    horizon: seconds after which labels are too late.
    """
    columns = [split.column for split in splits]
    for batch, _ in log.batches(columns):
        for split in splits:
            split.read(batch)
    sums = [_Sums(len(split.names)) for split in splits]
    total = _Sums(1)
    for batch, rows in log.batches(columns):
        matured = rows.time + horizon <= survey.end
        on_time = matured & (rows.delay <= horizon)
        columns_of_rows = *rows.pairs(log.target), matured, on_time
        total.add(np.zeros(len(rows.time), np.intp), *columns_of_rows)
        for split, part in zip(splits, sums, strict=True):
            part.add(split.groups(batch), *columns_of_rows)
    tried = sum(int(np.count_nonzero(part.labels >= _MIN_LABELS)) for part in sums)
    populated = sum(int(np.count_nonzero(part.predictions)) for part in sums)
    gaps = [
        gap
        for split, part in zip(splits, sums, strict=True)
        for gap in part.gaps(split, alpha / max(tried, 1), tolerance)
    ]
    gaps.sort(key=lambda gap: (-gap.certain_gap, gap.column, gap.value))
    labels = int(total.labels[0])
    return SegmentSearch(
        columns=columns,
        alpha=alpha,
        tolerance=tolerance,
        tried=tried,
        too_small=populated - tried,
        labels=labels,
        gap=float(total.correct[0] - total.confidence[0]) / labels if labels else None,
        exceeding=sum(gap.exceeds_tolerance for gap in gaps),
        segments=gaps[:_MAX_LISTED],
    )


class _Sums:
    """Sums over the rows of each group, (G,) each."""

    def __init__(self, groups: int) -> None:
        self.predictions = np.zeros(groups, np.int64)
        self.labels = np.zeros(groups, np.int64)
        self.correct = np.zeros(groups, np.int64)
        self.confidence = np.zeros(groups)

    def add(
        self,
        groups: NDArray[np.intp],
        confidence: Values,
        correct: Values,
        matured: NDArray[np.bool_],
        on_time: NDArray[np.bool_],
    ) -> None:
        size = len(self.labels)
        self.predictions += group_counts(groups[matured], size)
        groups, right = groups[on_time], correct[on_time]
        self.labels += group_counts(groups, size)
        self.correct += group_counts(groups[right == 1], size)
        self.confidence += group_sums(groups, confidence[on_time], size)

    def gaps(self, split: Split, alpha: float, tolerance: float) -> list[SegmentGap]:
        """Return the gap of each group with enough labels, with an interval of level 1 − alpha."""
        tried = np.flatnonzero(self.labels >= _MIN_LABELS)
        labels, correct = self.labels[tried], self.correct[tried]
        confidence, accuracy = self.confidence[tried] / labels, correct / labels
        low, high = accuracy_interval(correct, labels, alpha)
        low, high = low - confidence, high - confidence
        exceeds = np.maximum(low, -high) > tolerance
        names = split.names
        columns = (accuracy, confidence, accuracy - confidence, low, high, exceeds)
        return [
            SegmentGap(split.column, names[group], int(self.predictions[group]), int(n), *values)
            for group, n, *values in zip(
                tried, labels, *(column.tolist() for column in columns), strict=True
            )
        ]
