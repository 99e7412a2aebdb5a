"""One stream of cohorts under watch: all traffic of a calibrator, or one segment of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.calibration_test import CalibrationTest
from recalib.drift.monitor_state import Evidence
from recalib.drift.psi import confidence_shift
from recalib.drift.sliding_window import SlidingWindow
from recalib.drift.validation import check_rows
from recalib.drift.windows import Weighting, label_coverage, summarise_window
from recalib.errors import InputError

__all__ = ["Cohort", "StreamMonitor"]

Values = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cohort:
    """The predictions of some time, matured: later labels are too late."""

    #: Predictions made in each bin (B,), labelled or not.
    traffic: ArrayLike
    #: Of those whose labels have come (n,), in the order of the predictions: confidence in [0, 1],
    #: whether it was right, and the seconds until the label (0 where not given).
    confidences: ArrayLike
    correct: ArrayLike
    delays: ArrayLike | None = None
    #: When each was predicted (n,), in seconds and ascending, so that a rejection has an exact
    #: time; where not given it has the time at which the cohort ends.
    times: ArrayLike | None = None

    def rows(self) -> tuple[Values, Values]:
        """Return confidences and correctness, (n,) each; raise `InputError` for what cannot be."""
        return check_rows(self.confidences, self.correct)

    def made_at(self, end: float) -> Values:
        """Return the times of predictions (n,), `end` where not given.

        Raises
        ------
        InputError: not one for each row, or not finite.
        """
        rows = np.shape(self.confidences)
        times = np.full(rows, end) if self.times is None else np.asarray(self.times, np.float64)
        if times.shape != rows or not np.isfinite(times).all():
            raise InputError(
                "times",
                found=f"shape {times.shape}, or a value that is not finite",
                accepted=f"{rows}, seconds",
            )
        return times

    def sums(self, edges: ArrayLike) -> CalibrationSums:
        """Return its sums; raise `InputError` for what cannot be."""
        sums = CalibrationSums.empty(edges)
        sums.add_counts(self.traffic)
        sums.add_labels(self.confidences, self.correct, self.delays)
        return sums


class StreamMonitor:
    """A test, a window and a comparison with the calibration set, of one stream.

    Parameters
    ----------
    alpha: how often the test may reject although nothing is wrong.
    suspicion: the level of the cumulative sum that makes suspect.
    window_labels, oldest_seconds: what the window holds, see `SlidingWindow`.
    reference: counts (B,) of the calibration set; None where there is nothing to compare with.
    """

    def __init__(
        self,
        edges: Values,
        *,
        alpha: float,
        tolerance: float,
        suspicion: float,
        window_labels: int,
        oldest_seconds: float,
        weighting: Weighting,
        reference: Counts | None = None,
    ) -> None:
        self.test = CalibrationTest(alpha=alpha, tolerance=tolerance)
        #: Prediction times since which each bettor has won.
        self._onsets: list[float] = []
        self._rejected_time: float | None = None
        self._recent = SlidingWindow(edges, window_labels)
        self._suspicion = math.log(suspicion)
        self._oldest = oldest_seconds
        self._weighting: Weighting = weighting
        self._reference = reference

    @property
    def onset(self) -> float | None:
        """The prediction time since which evidence has grown, None before any label."""
        return self._onsets[self.test.leader] if self._onsets else None

    def add(
        self, start: float, end: float, sums: CalibrationSums, rows: tuple[Values, ...]
    ) -> None:
        """Take a cohort of predictions from `start` until before `end`.

        Parameters
        ----------
        rows: confidences, correctness and times of the labelled ones, (n,) each, checked.
        """
        confidences, correct, times = rows
        before, rejected = self.test.labels, self.test.rejected_at
        self.test.update(confidences, correct)
        if rejected is None and self.test.rejected_at is not None:
            self._rejected_time = float(times[self.test.rejected_at - before - 1])
        if self.test.labels > before:
            earlier = self._onsets or [start] * len(self.test.onsets)
            # Where a bettor stood lowest in this cohort, it wins from the row after that; rows
            # without a time of their own have the cohort's end, of which that row is not the first.
            begun = np.where(times < end, times, start)
            self._onsets = [
                float(begun[label - before]) if label >= before else time
                for label, time in zip(self.test.onsets, earlier, strict=True)
            ]
        self._recent.add(start, end, sums)

    def evidence(self, now: float, served: ArrayLike | None = None) -> Evidence:
        """Return what is known at time `now`.

        Parameters
        ----------
        served: counts (B,) of what was served lately, matured or not, for the comparison with the
            calibration set; those of the window where not given.
        """
        start, end, sums = self._recent.since(now - self._oldest)
        found = summarise_window(sums, weighting=self._weighting)
        coverage = label_coverage(sums)
        psi, threshold, covered = self._shift(sums, served)
        return Evidence(
            labels=self.test.labels,
            log_evidence=self.test.log_evidence,
            threshold=self.test.threshold,
            rejected_at=self.test.rejected_at,
            rejected_time=self._rejected_time,
            suspicion=self.test.suspicion if self.test.labels else None,
            suspicion_threshold=self._suspicion,
            window_start=start,
            window_end=end,
            n=found.labelled,
            traffic=found.traffic,
            coverage=None if coverage is None else coverage.share,
            coverage_p_value=None if coverage is None else coverage.p_value,
            selective=coverage is not None and coverage.selective,
            delay=found.delay,
            accuracy=found.accuracy,
            confidence=found.confidence,
            ece=found.ece,
            ece_floor=found.ece_floor,
            ece_low=found.ece_low,
            ece_high=found.ece_high,
            ce=found.ce,
            ce_low=found.ce_low,
            ce_high=found.ce_high,
            psi=psi,
            psi_threshold=threshold,
            psi_covered=covered,
        )

    def state(self) -> dict[str, Any]:
        """Return all that it has learnt, as JSON, options apart."""
        return {
            "test": self.test.state(),
            "onsets": self._onsets,
            "rejected_time": self._rejected_time,
            "recent": self._recent.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned, with the same options."""
        self.test.restore(state["test"])
        self._onsets = list(state["onsets"])
        self._rejected_time = state["rejected_time"]
        self._recent.restore(state["recent"])

    def _shift(
        self, sums: CalibrationSums, served: ArrayLike | None
    ) -> tuple[float | None, float | None, bool]:
        """Return PSI, its threshold, and whether the window is of confidences like those served."""
        seen = sums.traffic if served is None else np.asarray(served, np.int64)
        if self._reference is None or not seen.sum():
            return None, None, True
        shift = confidence_shift(self._reference, seen)
        covered = served is None
        if not covered and sums.traffic.sum():
            covered = not confidence_shift(sums.traffic, seen).shifted
        return shift.psi, shift.threshold, covered
