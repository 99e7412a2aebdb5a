"""Monitor one stream of cohorts: all traffic of a calibrator, or one segment of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.core.arrays import Numbers
from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.coverage import label_coverage
from recalib.drift.dependence import DependenceTest
from recalib.drift.expected_performance import expected_performance_of_sums
from recalib.drift.label_rates import RatedWindow, rate_window
from recalib.drift.monitor_options import MonitorOptions
from recalib.drift.monitor_state import Evidence
from recalib.drift.psi import confidence_shift
from recalib.drift.row_groups import (
    Groups,
    arrange_units,
    check_groups,
    unit_means,
    unit_weights,
)
from recalib.drift.silence import SilentClasses, describe_silence, silent_bins
from recalib.drift.sliding_window import SlidingWindow
from recalib.drift.target import PROMISES
from recalib.drift.timed_test import TimedTest
from recalib.drift.validation import check_finite_array, check_rows
from recalib.drift.windows import Window, shortfall_of, summarise_window

Counts = NDArray[np.int64]


#: With fewer labels, those that are needed are not estimated.
_MIN_UNITS = 100
#: What the evidence has from its window, under the same name.
_OF_WINDOW = (
    "traffic", "silent", "delay", "accuracy", "confidence", "ece", "ece_floor", "ece_low",
    "ece_high", "selection_low", "selection_high", "ce", "ce_low", "ce_high",
)  # fmt: skip

#: Confidences, correctness, times and groups.
Rows = tuple[Numbers, Numbers, Numbers, Groups]


@dataclass(frozen=True, eq=False)
class Cohort:
    """The predictions of a time span whose labels have matured; later labels are not used.

    Examples
    --------
    >>> from recalib.drift import Cohort
    >>> cohort = Cohort(traffic=[4, 6], confidences=[0.7, 0.9], correct=[0, 1])
    >>> cohort.sums(edges=[0.8]).labelled
    array([1, 1])
    """

    #: Number of predictions in each bin (B,), labelled or not.
    traffic: ArrayLike
    #: Of the labelled predictions (n,), in the order of prediction: confidence in [0, 1],
    #: correctness (0 or 1), and the seconds until the label (0 by default). Of two classes,
    #: P(y = 1) and whether y is 1, see `Target`.
    confidences: ArrayLike
    correct: ArrayLike
    delays: ArrayLike | None = None
    #: Prediction times (n,), in seconds and ascending: a rejection then has an exact time.
    #: By default the end of the cohort.
    times: ArrayLike | None = None
    #: Σp of all predictions in each bin (B,), None if it is unknown, and the number of predictions
    #: in it, by default all.
    traffic_confidence: ArrayLike | None = None
    traffic_confidence_count: ArrayLike | None = None
    #: Of the labelled predictions, the number of the group (n,), above 0; 0 for none, by default
    #: of all. Rows of a group may depend on each other: a group bets once, with the mean of its
    #: rows, and counts once in the window.
    groups: ArrayLike | None = None

    def rows(self) -> tuple[Numbers, Numbers]:
        """Return confidences and correctness, (n,) each; raise `InputError` for invalid values."""
        return check_rows(self.confidences, self.correct)

    def prediction_times(self, end: float) -> Numbers:
        """Return the prediction times (n,), `end` by default.

        Raises
        ------
        InputError: another number of times than rows, or a time that is not finite.
        """
        rows = np.shape(self.confidences)
        times = np.full(rows, end) if self.times is None else np.asarray(self.times, np.float64)
        check_finite_array("times", times, rows, "seconds")
        return times

    def group_numbers(self) -> Groups:
        """Return the number of the group of each row (n,), 0 for none."""
        return check_groups(self.groups, len(np.asarray(self.confidences)))

    def sums(self, edges: ArrayLike, is_new: NDArray[np.bool_] | None = None) -> CalibrationSums:
        """Return the sums; raise `InputError` for invalid values.

        Parameters
        ----------
        is_new: which rows are not of a group that has counted before, (n,); by default all. The
            others are labels of traffic, and add nothing to the error.
        """
        sums = CalibrationSums.empty(edges)
        sums.add_counts(self.traffic, self.traffic_confidence, self.traffic_confidence_count)
        weights = None
        if self.groups is not None:
            weights = unit_weights(self.group_numbers())
            weights = weights if is_new is None else weights * is_new
        sums.add_labels(self.confidences, self.correct, self.delays, weights)
        return sums


class StreamMonitor:
    """A sequential test, a sliding window and the PSI of one stream.

    Parameters
    ----------
    options: of the monitor that this stream belongs to.
    alpha: the false alarm rate of the test, a part of that of the options.
    reference: counts (B,) with which the traffic is compared; without them there is no PSI.
    calibration_counts: rows of the calibration set in each bin, (B,), None if unknown; their
        sampling error is in the expected performance.
    """

    def __init__(
        self,
        edges: Numbers,
        options: MonitorOptions,
        *,
        alpha: float,
        reference: Counts | None = None,
        calibration_counts: Counts | None = None,
    ) -> None:
        self.options = options
        self._timed = TimedTest(alpha, options.tolerance, options.target)
        self.test = self._timed.test
        self._window = SlidingWindow(CalibrationSums.empty(edges), options.window_labels)
        self._reference = reference
        self._calibration_counts = calibration_counts
        self._dependence = DependenceTest()

    @property
    def onset(self) -> float | None:
        """The prediction time since which the evidence has grown, None without labels."""
        return self._timed.onset

    def add(self, start: float, end: float, sums: CalibrationSums, rows: Rows) -> None:
        """Add a cohort of predictions made from `start` until before `end`.

        Parameters
        ----------
        rows: confidences, correctness, times and groups of the labelled ones, (n,) each, checked.
        """
        self._timed.add(start, end, *rows)
        p, y, times, groups = rows
        order, sizes = arrange_units(groups)
        # Rows without a time have the end of the cohort.
        times = np.where(times < end, times, start)
        p, y, times = (unit_means(column[order], sizes) for column in (p, y, times))
        self._dependence.add(times, p, y - p)
        self._window.add(start, end, sums)

    def window(self, oldest: float) -> RatedWindow:
        """Return the cohorts that end after `oldest`, by label rate."""
        empty, pause = self._window.empty, self.options.label_pause_seconds
        return rate_window(self._window.entries, empty, oldest, pause)

    def evidence(
        self,
        now: float,
        served: ArrayLike | None = None,
        silent_segments: Mapping[str, CalibrationSums] | None = None,
        silent_classes: SilentClasses | None = None,
    ) -> Evidence:
        """Return the evidence at time `now`.

        Parameters
        ----------
        served: counts (B,) of recent traffic, matured or not, for the PSI; by default the traffic
            of the window.
        silent_segments: sums over the window of segments without useful labels, by name.
        silent_classes: traffic of predicted classes without useful labels.
        """
        window = self.window(now - self.options.oldest_seconds)
        known, silent_traffic = window.sums, CalibrationSums.empty(window.sums.edges)
        segments = silent_segments or {}
        for part in segments.values():
            silent_traffic = silent_traffic.merge(part.traffic_only())
        # The oldest entry of a segment's window may begin before the window of all traffic, and
        # silent times may be those of silent segments.
        silent_traffic.traffic = np.minimum(silent_traffic.traffic, known.traffic)
        labelled = known.without_traffic(silent_traffic)
        summary = summarise_window(
            labelled,
            weighting=self.options.weighting,
            silent_traffic=silent_traffic.merge(window.silent_traffic),
            silent_classes=silent_classes,
            strata=window.strata,
            selection_ratio=self.options.selection_ratio,
        )
        if self.options.target in PROMISES.values():
            summary = shortfall_of(summary)
        sums = known.merge(window.silent_traffic)
        silence = None
        if self.options.weighting == "traffic" and summary.silent:
            silence = describe_silence(
                sums,
                silent_bins(labelled),
                segments,
                silent_classes.shares if silent_classes is not None else {},
                window.silent_times,
                window.silent_since,
                self.options.target,
            )
        coverage, dependence = label_coverage(sums), self._dependence.result
        repeats, rare = self._dependence.repeats.result, window.rare
        psi, threshold, covered = self._psi(sums, served)
        return Evidence(
            labels=self.test.labels,
            log_evidence=self.test.log_evidence,
            threshold=self.test.threshold,
            rejected_at=self.test.rejected_at,
            rejected_time=self._timed.rejected_time,
            suspicion=self.test.suspicion if self.test.labels else None,
            suspicion_threshold=math.log(self.options.suspicion),
            window_start=window.start,
            window_end=window.end,
            n=summary.labelled,
            units=round(summary.units),
            dependence=None if dependence is None else dependence.ratio,
            dependence_rows=None if dependence is None else dependence.rows,
            dependent=dependence is not None and dependence.is_significant,
            repeats=None if repeats is None else repeats.repeats,
            repeats_rows=None if repeats is None else repeats.rows,
            has_repeats=repeats is not None and repeats.is_significant,
            coverage=None if coverage is None else coverage.share,
            coverage_p_value=None if coverage is None else coverage.p_value,
            selective=coverage is not None and coverage.selective,
            silent_reason=silence,
            silent_since=window.silent_since,
            rare_since=None if rare is None else rare.since,
            rare_coverage=None if rare is None else rare.rate,
            usual_coverage=None if rare is None else rare.usual,
            rare_widening=None if rare is None else rare.widening,
            labels_needed=self._labels_needed(summary),
            selection_ratio=None if summary.selection_low is None else self.options.selection_ratio,
            **{name: getattr(summary, name) for name in _OF_WINDOW},
            psi=psi,
            psi_threshold=threshold,
            psi_covered=covered,
            target=self.options.target,
            expected=None
            if self.options.target in PROMISES.values()
            else expected_performance_of_sums(sums, self.options.target, self._calibration_counts),
        )

    def _labels_needed(self, window: Window) -> int | None:
        """Return the labels with which ECE at its floor has an interval below the objective."""
        high, is_selected = window.ece_floor_high, self.options.selection_ratio > 1
        if high is None or window.units < _MIN_UNITS or window.silent or is_selected:
            return None
        return math.ceil(window.units * (high / self.options.objective) ** 2)

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without the options."""
        return {
            **self._timed.state(),
            "recent": self._window.state(),
            "dependence": self._dependence.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the options must be the same."""
        self._timed.restore(state)
        self._dependence = DependenceTest()
        if "dependence" in state:  # states of earlier versions do not have it
            self._dependence.restore(state["dependence"])
        self._window.restore(state["recent"], CalibrationSums.from_dict)

    def _psi(
        self, sums: CalibrationSums, served: ArrayLike | None
    ) -> tuple[float | None, float | None, bool]:
        """Return PSI, its threshold, and whether the window is distributed like `served`."""
        traffic = sums.traffic if served is None else np.asarray(served, np.int64)
        if self._reference is None or not traffic.sum():
            return None, None, True
        shift = confidence_shift(self._reference, traffic)
        covered = served is None
        if not covered and sums.traffic.sum():
            covered = not confidence_shift(sums.traffic, traffic).shifted
        return shift.psi, shift.threshold, covered
