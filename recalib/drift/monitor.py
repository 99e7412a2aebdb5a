"""Is a calibrator still good? One of four states, by all that its predictions and labels tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.drift.calibration_sums import CalibrationSums, check_edges
from recalib.drift.monitor_state import STATES, Evidence, State, decide_state
from recalib.drift.stream_monitor import Cohort, StreamMonitor
from recalib.drift.windows import Weighting
from recalib.errors import InputError
from recalib.options import check_option

__all__ = ["Monitor", "MonitorOptions", "SegmentStatus", "Status", "spend_alpha"]

Values = NDArray[np.float64]

_WEEK = 7 * 86_400.0


@dataclass(frozen=True)
class MonitorOptions:
    """What is good enough, how sure one must be, and what is recent."""

    #: The probability of ever calling a calibrator stale although accuracy has always been within
    #: `tolerance` of confidence; over the life of this monitor, all segments together.
    alpha: float = 0.05
    tolerance: float = 0.02
    #: The ECE that is still good.
    objective: float = 0.05
    #: Labels below which a window says nothing, and labels that are enough for one.
    least_labels: int = 300
    window_labels: int = 4_000
    #: How far back a window reaches, in seconds.
    oldest_seconds: float = _WEEK
    #: The cumulative sum that makes suspect: on average at least so many blocks of labels
    #: pass until it does so although nothing is wrong.
    suspicion: float = 10.0
    #: By what a window's bins weigh; by traffic it is of all predictions where labels come for
    #: some confidences more often than for others.
    weighting: Weighting = "traffic"
    #: Most segments that are watched besides all traffic; 0 for none.
    segments: int = 0

    def __post_init__(self) -> None:
        check_option("alpha", self.alpha, 0 < self.alpha < 1, "0 < alpha < 1")
        check_option("tolerance", self.tolerance, 0 <= self.tolerance < 0.5, "0 ≤ tolerance < 0.5")
        check_option("objective", self.objective, 0 < self.objective < 1, "0 < objective < 1")
        check_option("least_labels", self.least_labels, self.least_labels >= 2, "at least 2")
        enough = self.window_labels >= self.least_labels
        check_option("window_labels", self.window_labels, enough, "at least least_labels")
        positive = self.oldest_seconds > 0
        check_option("oldest_seconds", self.oldest_seconds, positive, "more than 0")
        check_option("suspicion", self.suspicion, self.suspicion > 1, "more than 1")
        check_option("segments", self.segments, 0 <= self.segments <= 1000, "0 to 1000")


@dataclass(frozen=True)
class SegmentStatus:
    """The same of one segment."""

    state: State
    reason: str
    evidence: Evidence
    #: Prediction time since which evidence against it has grown.
    onset: float | None


@dataclass(frozen=True)
class Status:
    """How a calibrator is now. The state is the worst of all traffic's and the segments'."""

    state: State
    #: Since when, in seconds.
    since: float
    #: One plain sentence.
    reason: str
    #: Of all traffic.
    evidence: Evidence
    #: Prediction time since which evidence has grown, of what the state comes from: a refit takes
    #: labels from here on.
    onset: float | None
    #: Whose state it is; None for all traffic's.
    segment: str | None
    segments: Mapping[str, SegmentStatus]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "state": self.state,
            "since": self.since,
            "reason": self.reason,
            "evidence": self.evidence.to_dict(),
            "onset": self.onset,
            "segment": self.segment,
            "segments": {
                name: {
                    "state": one.state,
                    "reason": one.reason,
                    "evidence": one.evidence.to_dict(),
                    "onset": one.onset,
                }
                for name, one in self.segments.items()
            },
        }


def spend_alpha(alpha: float, number: int) -> float:
    """Return α_k = 6α/(π²k²) for the k-th thing that is tested, from 1: in all, at most α.

    For a model's versions, each of which has a monitor of its own.
    """
    check_option("number", number, number >= 1, "at least 1")
    return 6 * alpha / (math.pi * number) ** 2


class Monitor:
    """Watches one calibrator, by cohorts of its predictions.

    A cohort is what was predicted in some stretch of time, and comes when its labels have matured:
    after a horizon within which nearly all labels arrive. Read in order of arrival instead, a
    calibrated stream whose errors are reported first looks miscalibrated.

    With `segments`, half of α is for all traffic and the other half is split among them, so that a
    drift of one is found that all traffic hides.

    Parameters
    ----------
    edges: inner edges (B − 1,) of bins, best at quantiles of the calibration set.
    reference: counts (B,) of the calibration set, without which no shift of confidences is seen.

    Raises
    ------
    InputError: edges that do not ascend in (0, 1], or counts that do not fit them.
    """

    def __init__(
        self,
        edges: ArrayLike,
        reference: ArrayLike | None = None,
        options: MonitorOptions | None = None,
    ) -> None:
        self.options = options or MonitorOptions()
        self._edges = check_edges(edges)
        if reference is not None:
            counted = CalibrationSums.empty(self._edges)
            counted.add_counts(reference)
            reference = counted.traffic if counted.traffic.sum() else None
        of_all = self.options.alpha / (2 if self.options.segments else 1)
        self._all = self._track(of_all, reference)
        self._segments: dict[str, StreamMonitor] = {}
        self._end = -math.inf
        self._state: State = "unverified"
        self._since: float | None = None

    def add(self, start: float, end: float, parts: Mapping[str, Cohort] | Cohort) -> None:
        """Take the matured cohort of predictions made from `start` until before `end`, in seconds.

        Parameters
        ----------
        parts: what each segment has, by its name; without segments a `Cohort` will do.

        Raises
        ------
        InputError: a cohort that begins before the last one ended, more segments than declared, or
            rows that cannot be. Nothing is taken then.
        """
        named = {"": parts} if isinstance(parts, Cohort) else dict(parts)
        self._check(start, end, named)
        taken = {
            name: (part.sums(self._edges), (*part.rows(), part.made_at(end)))
            for name, part in named.items()
        }
        whole = CalibrationSums.empty(self._edges)
        for sums, _ in taken.values():
            whole.merge(sums)
        self._all.add(start, end, whole, _in_order([rows for _, rows in taken.values()]))
        self._end = end
        for name, one in taken.items() if self.options.segments else ():
            if name not in self._segments:
                self._segments[name] = self._track(self._alpha_of_segment())
            self._segments[name].add(start, end, *one)

    def assess(self, now: float, served: ArrayLike | None = None) -> Status:
        """Return the state at time `now`, in seconds on the clock of prediction times.

        Whoever asks again gets the same, but that the state lasts `since` the first time that it
        was found.

        Parameters
        ----------
        served: counts (B,) of what was served lately, matured or not; see `StreamMonitor.evidence`.
        """
        worst = self._judged(self._all, now, served)
        evidence, owner = worst.evidence, None
        segments = {name: self._judged(one, now) for name, one in self._segments.items()}
        for name, one in segments.items():
            # A segment of few labels is unverified by itself, and no reason to doubt the rest.
            if one.state in ("suspect", "stale") and _badness(one.state) > _badness(worst.state):
                worst, owner = one, name
        if self._since is None or worst.state != self._state:
            self._state, self._since = worst.state, now
        reason = worst.reason if owner is None else f"segment {owner!r}: {worst.reason}"
        return Status(worst.state, self._since, reason, evidence, worst.onset, owner, segments)

    def state(self) -> dict[str, Any]:
        """Return all that it has learnt, as JSON, options, edges and reference apart."""
        return {
            "end": None if self._end == -math.inf else self._end,
            "state": self._state,
            "since": self._since,
            "all": self._all.state(),
            "segments": {name: one.state() for name, one in self._segments.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned, made with the same options, edges and reference."""
        self._end = -math.inf if state["end"] is None else float(state["end"])
        if state["state"] not in STATES:
            raise InputError("state", found=repr(state["state"]), accepted=", ".join(STATES))
        self._state, self._since = state["state"], state["since"]
        self._all.restore(state["all"])
        self._segments = {}
        for name, saved in state["segments"].items():
            self._segments[name] = self._track(self._alpha_of_segment())
            self._segments[name].restore(saved)

    def _check(self, start: float, end: float, parts: Mapping[str, Cohort]) -> None:
        if not (math.isfinite(start) and math.isfinite(end) and self._end <= start < end):
            raise InputError(
                "start",
                found=f"a cohort from {start:g} to {end:g}",
                accepted=f"one that ends after it begins, at or after {self._end:g}",
            )
        if not self.options.segments:
            if set(parts) - {""}:
                found, accepted = f"segments {sorted(parts)}", "none, since none are declared"
                raise InputError("segments", found=found, accepted=accepted)
            return
        every = set(self._segments) | set(parts)
        if len(every) > self.options.segments:
            accepted = f"at most {self.options.segments}"
            raise InputError("segments", found=f"{len(every)} different", accepted=accepted)

    def _track(self, alpha: float, reference: Any = None) -> StreamMonitor:
        return StreamMonitor(
            self._edges,
            alpha=alpha,
            tolerance=self.options.tolerance,
            suspicion=self.options.suspicion,
            window_labels=self.options.window_labels,
            oldest_seconds=self.options.oldest_seconds,
            weighting=self.options.weighting,
            reference=reference,
        )

    def _alpha_of_segment(self) -> float:
        return self.options.alpha / (2 * self.options.segments)

    def _judged(
        self, track: StreamMonitor, now: float, served: ArrayLike | None = None
    ) -> SegmentStatus:
        evidence = track.evidence(now, served)
        state, reason = decide_state(
            evidence,
            objective=self.options.objective,
            tolerance=self.options.tolerance,
            least_labels=self.options.least_labels,
        )
        return SegmentStatus(state, reason, evidence, track.onset)


def _badness(state: State) -> int:
    return STATES.index(state)


def _in_order(parts: Sequence[tuple[Values, ...]]) -> tuple[Values, ...]:
    """Return confidences, correctness and times of all parts, by time."""
    nothing = (np.zeros(0),) * 3
    p, y, times = (np.concatenate(columns) for columns in zip(nothing, *parts, strict=True))
    order = np.argsort(times, kind="stable")
    return p[order], y[order], times[order]
