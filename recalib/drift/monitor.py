"""The calibration monitor: one of four states, from predictions and their labels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recalib.core.options import check_option
from recalib.drift.calibration_sums import CalibrationSums, check_edges
from recalib.drift.class_monitor import ClassEvidence, ClassMonitor, decide_class_state
from recalib.drift.class_rows import ClassRows
from recalib.drift.class_traffic import ClassTraffic
from recalib.drift.monitor_options import MonitorOptions
from recalib.drift.monitor_state import STATES, Evidence, State, decide_state
from recalib.drift.row_groups import RecentGroups
from recalib.drift.silence import SilentClasses, is_silent
from recalib.drift.stream_monitor import Cohort, Rows, StreamMonitor
from recalib.drift.target import PROMISES
from recalib.errors import InputError


@dataclass(frozen=True)
class SegmentStatus:
    """The status of one segment."""

    state: State
    reason: str
    evidence: Evidence
    #: Whether labels are evidence against the calibrator, and this may come from their selection.
    may_be_selection: bool
    #: Prediction time since which the evidence has grown.
    onset: float | None


@dataclass(frozen=True)
class Status:
    """The status of a calibrator: the worst state of all traffic, the segments and the classes."""

    state: State
    #: Time at which the state began, in seconds.
    since: float
    #: The reason for the state, one sentence.
    reason: str
    #: The evidence of all traffic.
    evidence: Evidence
    #: Whether the reason is evidence from labels that may come from their selection.
    may_be_selection: bool
    #: Prediction time since which the evidence for the state has grown: a refit uses labels from
    #: this time on.
    onset: float | None
    #: The segment that determines the state; None for all traffic or the classes.
    segment: str | None
    segments: Mapping[str, SegmentStatus]
    #: The evidence of the watched classes, None without any.
    classes: ClassEvidence | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON."""
        return asdict(self)


def spend_alpha(alpha: float, number: int) -> float:
    """Return the error rate of the k-th test, α_k = 6α/(π²k²), k from 1; they sum to α.

    Each version of a model has its own monitor, and all of them share the α of the model.

    Examples
    --------
    >>> from recalib.drift import spend_alpha
    >>> [round(spend_alpha(0.05, k), 4) for k in (1, 2, 3)]
    [0.0304, 0.0076, 0.0034]
    """
    check_option("number", number, number >= 1, "at least 1")
    return 6 * alpha / (math.pi * number) ** 2


class Monitor:
    """Monitor one calibrator, by cohorts of its predictions.

    A cohort holds the predictions of a time span. It is added when its labels have matured: after a
    delay within which nearly all labels arrive. In order of arrival instead, a calibrated stream
    whose errors are reported first would look miscalibrated. The state depends on the order of the
    cohorts, see `CalibrationTest`: one process monitors a calibrator.

    α is divided equally among all traffic, the segments, the classes and each promise, of sets and
    of accepted rows, as far as they are monitored. A drift of one segment or class is then found
    even if it does not show in all traffic.

    Parameters
    ----------
    edges: inner edges (B − 1,) of bins, preferably at quantiles of the calibration set.
    reference: counts (B,) of the calibration set, or of earlier traffic; without them there is no
        PSI.
    class_labels: names of all classes of the model, for the reasons.
    is_calibration_set: whether `reference` counts the rows that the calibrator was fitted on; the
        intervals of the expected performance then have its error.

    Raises
    ------
    InputError: the edges do not ascend in (0, 1], or the counts do not fit them.

    Examples
    --------
    >>> from recalib.drift import Cohort, Monitor
    >>> monitor = Monitor(edges=[0.8])
    >>> for day in range(3):
    ...     right = np.arange(400) % 10 < 9
    ...     cohort = Cohort([0, 400], np.full(400, 0.9), right)
    ...     monitor.add(86_400.0 * day, 86_400.0 * (day + 1), cohort)
    >>> monitor.assess(now=3 * 86_400.0).state
    'fresh'
    """

    def __init__(
        self,
        edges: ArrayLike,
        reference: ArrayLike | None = None,
        options: MonitorOptions | None = None,
        class_labels: Sequence[str] | None = None,
        *,
        is_calibration_set: bool = True,
    ) -> None:
        self.options = options or MonitorOptions()
        self._class_labels = class_labels
        self._edges = check_edges(edges)
        if reference is not None:
            counted = CalibrationSums.empty(self._edges)
            counted.add_counts(reference)
            reference = counted.traffic if counted.traffic.sum() else None
        promises = self.options.of_promises()
        shares = 1 + bool(self.options.segments) + bool(self.options.classes) + len(promises)
        self._alpha = self.options.alpha / shares
        self._reference = reference
        self._calibration_counts = reference if is_calibration_set else None
        self._all = self._stream_monitor(self._alpha, reference)
        self._segments: dict[str, StreamMonitor] = {}
        self._promises = {
            name: StreamMonitor(np.zeros(0), of_promise, alpha=self._alpha)
            for name, of_promise in promises.items()
        }
        self._classes: ClassMonitor | None = None
        if self.options.classes:
            self._classes = ClassMonitor(
                self.options.classes,
                alpha=self._alpha,
                tolerance=self.options.tolerance,
                suspicion=self.options.suspicion,
                window_labels=self.options.window_labels,
            )
        #: A group that spans cohorts counts in its first one.
        self._groups = RecentGroups()
        self._end = -math.inf
        self._state: State = "unverified"
        self._since: float | None = None

    def add(
        self,
        start: float,
        end: float,
        cohorts: Mapping[str, Cohort] | Cohort,
        class_rows: ClassRows | None = None,
        class_traffic: ClassTraffic | None = None,
        promised: Mapping[str, Cohort] | None = None,
    ) -> None:
        """Add the matured cohort of predictions made from `start` until before `end`, in seconds.

        Parameters
        ----------
        cohorts: a cohort per segment, by name; without segments, one `Cohort`.
        class_rows: labelled predictions of all segments with the probabilities of the watched
            classes. Which of the predictions are among them must not depend on the labels.
        class_traffic: all predictions of all segments by predicted class. With it, classes whose
            labels stop are found. It is given with each cohort, or with none.
        promised: of `(sets)`, labelled predictions with the promised coverage as confidence, and
            whether their sets have the label; of `(accepted)`, accepted ones with the promised
            accuracy. Which predictions are among them must not depend on the labels.

        Raises
        ------
        InputError: the cohort begins before the end of the last, has more segments than declared,
            or has invalid rows; nothing is added.
        """
        by_segment = {"": cohorts} if isinstance(cohorts, Cohort) else dict(cohorts)
        self._check(start, end, by_segment)
        data = {}
        for name, cohort in by_segment.items():
            data[name] = self._new_rows(cohort, end, self._edges)
        if class_rows is not None and class_rows.groups is not None:
            class_rows = class_rows.select(self._groups.are_new(class_rows.groups))
        parts = (sums for sums, _ in data.values())
        total = reduce(CalibrationSums.merge, parts, CalibrationSums.empty(self._edges))
        self._all.add(start, end, total, _sort_by_time([rows for _, rows in data.values()]))
        self._end = end
        for name, cohort in (promised or {}).items():
            self._promises[name].add(start, end, *self._new_rows(cohort, end, []))
        for name, (sums, rows) in data.items() if self.options.segments else ():
            if name not in self._segments:
                self._segments[name] = self._stream_monitor(self._segment_alpha())
            self._segments[name].add(start, end, sums, rows)
        if self._classes is not None and class_rows is not None:
            self._classes.add(start, end, class_rows)
        if self._classes is not None and class_traffic is not None:
            self._classes.add_traffic(start, end, class_traffic)
        for cohort in by_segment.values():
            self._groups.remember(cohort.group_numbers())

    def assess(self, now: float, served: ArrayLike | None = None) -> Status:
        """Return the state at time `now`, in seconds on the clock of prediction times.

        `since` is the time of the first call that returned this state.

        Parameters
        ----------
        served: counts (B,) of recent traffic, matured or not; see `StreamMonitor.evidence`.
        """
        oldest, silent_classes = now - self.options.oldest_seconds, None
        if self._classes is not None:
            silent_classes = self._classes.silent(oldest, self._class_labels)
        silent = self._silent_segments(oldest), silent_classes
        worst = self._segment_status(self._all, now, served, *silent)
        evidence, owner = worst.evidence, None
        segments = {
            name: self._segment_status(monitor, now) for name, monitor in self._segments.items()
        }
        for name, stream in self._promises.items():
            if stream.test.labels:
                segments[name] = self._segment_status(stream, now)
        for name, segment in segments.items():
            # A segment with few labels is unverified; that is no evidence against the others.
            has_drifted = segment.state in ("suspect", "stale")
            if has_drifted and STATES.index(segment.state) > STATES.index(worst.state):
                worst, owner = segment, name
        state, reason = worst.state, worst.reason
        if owner is not None and owner not in PROMISES:
            reason = f"segment {owner!r}: {reason}"
        onset, class_evidence, may_be_selection = worst.onset, None, worst.may_be_selection
        if self._classes is not None:
            class_evidence = self._classes.evidence(oldest)
            names, tolerance = self._class_labels, self.options.tolerance
            decision = decide_class_state(class_evidence, tolerance, names)
            if decision is not None and STATES.index(decision[0]) > STATES.index(state):
                (state, reason), onset, owner = decision, self._classes.onset, None
                may_be_selection = evidence.selective
                reason += "; this may come from the selection of labels" * may_be_selection
        if self._since is None or state != self._state:
            self._state, self._since = state, now
        if state == "stale":
            evidence = dataclasses.replace(evidence, expected=None)
        return Status(
            state,
            self._since,
            reason,
            evidence,
            may_be_selection,
            onset,
            owner,
            segments,
            class_evidence,
        )

    def __repr__(self) -> str:
        return f"<Monitor: {self._state}>"

    def __eq__(self, other: object) -> bool:
        """Return whether options, edges, reference and state are equal."""
        if not isinstance(other, Monitor):
            return NotImplemented
        mine, others = (
            (
                monitor.options,
                monitor._class_labels,
                monitor._edges.tolist(),
                None if monitor._reference is None else monitor._reference.tolist(),
                monitor.state(),
            )
            for monitor in (self, other)
        )
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without options, edges and reference."""
        return {
            "end": None if self._end == -math.inf else self._end,
            "state": self._state,
            "since": self._since,
            "all": self._all.state(),
            "segments": {name: monitor.state() for name, monitor in self._segments.items()},
            **({} if self._classes is None else {"classes": self._classes.state()}),
            **{name.strip("()"): stream.state() for name, stream in self._promises.items()},
            **({"groups": self._groups.state()} if self._groups else {}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned; options, edges and reference must be the same."""
        self._end = -math.inf if state["end"] is None else float(state["end"])
        if state["state"] not in STATES:
            raise InputError("state", found=repr(state["state"]), accepted=", ".join(STATES))
        self._state, self._since = state["state"], state["since"]
        self._all.restore(state["all"])
        self._segments = {}
        for name, saved in state["segments"].items():
            self._segments[name] = self._stream_monitor(self._segment_alpha())
            self._segments[name].restore(saved)
        if self._classes is not None:
            self._classes.restore(state["classes"])
        for name, stream in self._promises.items():
            if name.strip("()") in state:  # earlier versions did not monitor promises
                stream.restore(state[name.strip("()")])
        self._groups = RecentGroups(state.get("groups", ()))

    def _check(self, start: float, end: float, cohorts: Mapping[str, Cohort]) -> None:
        if not (math.isfinite(start) and math.isfinite(end) and self._end <= start < end):
            raise InputError(
                "start",
                found=f"a cohort from {start:g} to {end:g}",
                accepted=f"a cohort that starts at or after {self._end:g} and before its end",
            )
        if not self.options.segments:
            if set(cohorts) - {""}:
                found, accepted = f"segments {sorted(cohorts)}", "none, since none are declared"
                raise InputError("segments", found=found, accepted=accepted)
            return
        names = set(self._segments) | set(cohorts)
        if len(names) > self.options.segments:
            accepted = f"at most {self.options.segments}"
            raise InputError("segments", found=f"{len(names)} different", accepted=accepted)

    def _new_rows(
        self, cohort: Cohort, end: float, edges: ArrayLike
    ) -> tuple[CalibrationSums, Rows]:
        """Return the sums of a cohort and its rows, without those of groups that were seen."""
        groups = cohort.group_numbers()
        is_new = self._groups.are_new(groups)
        p, y = cohort.rows()
        rows = p[is_new], y[is_new], cohort.prediction_times(end)[is_new], groups[is_new]
        return cohort.sums(edges, is_new), rows

    def _stream_monitor(self, alpha: float, reference: Any = None) -> StreamMonitor:
        return StreamMonitor(
            self._edges,
            self.options,
            alpha=alpha,
            reference=reference,
            calibration_counts=self._calibration_counts,
        )

    def _silent_segments(self, oldest: float) -> dict[str, CalibrationSums]:
        """Return the sums of segments without useful labels in the window of all traffic."""
        window = self._all.window(oldest)
        total = window.sums.merge(window.silent_traffic)
        traffic = int(total.seen.sum())
        if window.start is None or not traffic or not self._segments:
            return {}
        windows = {}
        for name, monitor in self._segments.items():
            part = monitor.window(window.start)
            windows[name] = part.sums.merge(part.silent_traffic)
        silent = is_silent(
            [int(sums.labelled.sum()) for sums in windows.values()],
            [int(sums.seen.sum()) for sums in windows.values()],
            total.labelled.sum() / traffic,
        )
        return {name: windows[name] for name, flag in zip(windows, silent, strict=True) if flag}

    def _segment_alpha(self) -> float:
        return self._alpha / self.options.segments

    def _segment_status(
        self,
        monitor: StreamMonitor,
        now: float,
        served: ArrayLike | None = None,
        silent_segments: Mapping[str, CalibrationSums] | None = None,
        silent_classes: SilentClasses | None = None,
    ) -> SegmentStatus:
        evidence = monitor.evidence(now, served, silent_segments, silent_classes)
        decision = decide_state(evidence, monitor.options)
        if decision.state == "stale":
            evidence = dataclasses.replace(evidence, expected=None)
        return SegmentStatus(
            decision.state, decision.reason, evidence, decision.may_be_selection, monitor.onset
        )


def _sort_by_time(cohorts: Sequence[Rows]) -> Rows:
    """Return confidences, correctness, times and groups of all cohorts, by time."""
    empty = (*(np.zeros(0),) * 3, np.zeros(0, np.int64))
    p, y, times, groups = (np.concatenate(parts) for parts in zip(empty, *cohorts, strict=True))
    order = np.argsort(times, kind="stable")
    return p[order], y[order], times[order], groups[order]
