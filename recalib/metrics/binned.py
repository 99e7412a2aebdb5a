"""Metrics of the sums in bins: what they read of predictions."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeVar

from recalib.core.arrays import Numbers
from recalib.metrics.base import Estimate, StreamingMetric
from recalib.metrics.calibration_gaps import Gaps, mean_gap
from recalib.metrics.confidence_groups import ConfidenceGroups
from recalib.metrics.predictions import Predictions
from recalib.stats.class_bins import ClassBins
from recalib.stats.sums import Bins, BinSums, Cells

S = TypeVar("S", bound=BinSums)


class GapMetric(StreamingMetric[S]):
    """An error of the gaps of bins, of the top label or of each class."""

    @staticmethod
    def error(gaps: Gaps, level: float | None) -> Estimate:
        """Return the error, by default their mean size; see `recalib.metrics.calibration_gaps`."""
        return mean_gap(gaps, level)

    def estimate(self, state: S, level: float | None = None) -> Estimate:
        return self.error(Gaps.of(state), level)


class BinMetric(GapMetric[Bins]):
    """A function of the top label in M equal-width bins of confidence."""

    state_kind: ClassVar[str] = "bins"

    def state(self, classes: int, *, weighted: bool = False) -> Bins:
        return Bins(self.bins, weighted=weighted)

    def add(self, state: Bins, predictions: Predictions, weights: Numbers | None = None) -> None:
        state.add(predictions.confidences, predictions.correct, weights)


class GroupMetric(StreamingMetric[Cells]):
    """A function of rows in the order of confidence, in groups: tied rows, or cells of a stream."""

    state_kind: ClassVar[str] = "cells"

    def state(self, classes: int, *, weighted: bool = False) -> Cells:
        return Cells(weighted=weighted)

    def add(self, state: Cells, predictions: Predictions, weights: Numbers | None = None) -> None:
        state.add(predictions.confidences, predictions.correct, weights)

    def measure(
        self, predictions: Predictions, level: float | None = None, weights: Numbers | None = None
    ) -> Estimate:
        groups = ConfidenceGroups.from_rows(predictions.ties, predictions.correct, weights)
        return self.estimate_groups(groups, level)

    def estimate(self, state: Cells, level: float | None = None) -> Estimate:
        return self.estimate_groups(ConfidenceGroups.from_cells(state), level)

    def error_bound(self, state: Cells) -> float:
        return self.error_of_groups(ConfidenceGroups.from_cells(state))

    @abstractmethod
    def estimate_groups(self, groups: ConfidenceGroups, level: float | None) -> Estimate:
        """Return the metric of the rows of groups, at least one."""

    @abstractmethod
    def error_of_groups(self, groups: ConfidenceGroups) -> float:
        """Return `error_bound` of cells."""


class ClassMetric(GapMetric[ClassBins]):
    """A function of each class's probabilities in M equal-width bins."""

    state_kind: ClassVar[str] = "classwise"

    def state(self, classes: int, *, weighted: bool = False) -> ClassBins:
        return ClassBins(classes, self.bins, weighted=weighted)

    def add(
        self, state: ClassBins, predictions: Predictions, weights: Numbers | None = None
    ) -> None:
        state.add(predictions.probabilities, predictions.labels, weights)
