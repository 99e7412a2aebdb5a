"""A monitor fed with the cohorts of a log, as it would have been at the time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.card import Card
from recalib.drift import CalibrationSums, Cohort, Monitor, MonitorOptions, Status, quantile_edges
from recalib.drift.calibration_sums import bin_indices
from recalib.drift.reference_histogram import reference_edges
from recalib.errors import InputError
from recalib.options import check_option
from recalib.replay.class_shares import ClassShares, Stretch, class_shares
from recalib.replay.columns import Rows
from recalib.replay.log import Log, Survey

__all__ = ["Replay", "ReplayOptions", "replay"]

#: Cohorts of a log, unless their length is given: at most so many, of so many labels on average.
_COHORTS, _LABELS = 300, 50
_MOST_COHORTS = 10_000
#: Labels that are waited for, unless the time is given.
_MATURED = 0.99
#: The first predictions stand for the calibration set: this share, and at least or most so many.
_REFERENCE, _FEWEST, _MOST = 0.1, 1_000, 100_000
_WEEK = 7 * 86_400.0


@dataclass(frozen=True)
class ReplayOptions:
    """What `MonitorOptions` says, and how the log is cut."""

    alpha: float = 0.05
    tolerance: float = 0.02
    objective: float = 0.05
    window_labels: int = 4_000
    least_labels: int = 300
    #: Seconds from prediction to when its cohort is read; by default those in which 99% of the
    #: labels came.
    maturity: float | None = None
    #: Seconds of a cohort; by default what makes 300 of them, or fewer where labels are few.
    cohort: float | None = None

    def __post_init__(self) -> None:
        if self.maturity is not None:
            check_option("maturity", self.maturity, self.maturity >= 0, "at least 0")
        if self.cohort is not None:
            check_option("cohort", self.cohort, self.cohort > 0, "more than 0")


@dataclass(frozen=True)
class Event:
    """A change of state, at a prediction time in seconds."""

    time: float
    status: Status

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        found = self.status.to_dict()
        order = ("state", "reason", "evidence", "onset", "segment")
        return {"time": self.time, **{name: found[name] for name in order}}


@dataclass(frozen=True)
class Replay:
    """What a replay found."""

    rows: int
    labelled: int
    #: Labels that came after the horizon, which nobody would have waited for: not used.
    late: int
    #: Predictions in cohorts that had not matured when the log ends: not used.
    immature: int
    #: Seconds, and whether the log's delays or the caller chose them.
    maturity: float
    maturity_from: Literal["delays", "given"]
    cohort: float
    #: What confidences are compared with: rows of the calibration set, or first predictions.
    reference: int
    reference_from: Literal["calibrator", "log"]
    #: The last state, `unverified` where nothing has matured.
    state: str
    events: list[Event]
    #: A line for each matured cohort, what was known when it had been read.
    windows: list[dict[str, Any]] = field(repr=False)
    #: None where rows have no probabilities, or the last window reaches back to the first rows.
    class_shares: ClassShares | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "state": self.state,
            "rows": self.rows,
            "labelled": self.labelled,
            "late": self.late,
            "immature": self.immature,
            "maturity": {"seconds": self.maturity, "from": self.maturity_from},
            "cohort_seconds": self.cohort,
            "reference_rows": self.reference,
            "reference_from": self.reference_from,
            "class_shares": None if self.class_shares is None else self.class_shares.to_dict(),
            "events": [one.to_dict() for one in self.events],
            "windows": self.windows,
        }


def replay(
    path: Path,
    options: ReplayOptions | None = None,
    progress: Callable[[str], None] = lambda text: None,
    card: Card | None = None,
) -> Replay:
    """Return what the monitor would have said of a log, cohort by cohort.

    A cohort is read when its horizon has passed, by which time later labels have not come; what
    has not matured when the log ends is left out. All times are those of predictions: a state
    that begins at time t is of predictions until t, and was known one horizon later.

    Without a card, the first tenth of the predictions stands for the calibration set: bins are at
    its quantiles, and later confidences are compared with it. It is watched like the rest.

    Parameters
    ----------
    card: of the calibrator whose predictions these are: bins and what confidences are compared
        with are those of its calibration set.

    Raises
    ------
    InputError: a log that cannot be read, or with a row that cannot be; options out of range; a
        card that does not say how sure the calibrator was, or of other classes than the log.
    """
    chosen = options or ReplayOptions()
    MonitorOptions(alpha=chosen.alpha, tolerance=chosen.tolerance, objective=chosen.objective)
    if card is not None and card.confidences is None:
        found = "a card without the confidences of the calibration set"
        raise InputError("calibrator", found=found, accepted="one fitted by a newer Recalib")
    with Log(path, None if card is None else card.classes) as log:
        progress("reading")
        survey = log.survey()
        horizon = survey.delay_quantile(_MATURED) if chosen.maturity is None else chosen.maturity
        cohort, cohorts = _cut(survey, chosen.cohort)
        counts = log.counts(survey, cohort, cohorts)
        edges, reference = _reference(log, survey, cohort, counts, card)
        monitor = Monitor(edges, reference, _monitor_options(chosen, survey, cohort))
        reader = _Reader(monitor, edges, horizon, survey.end)
        for number, rows in log.slices(survey, cohort, counts):
            progress(f"cohort {number + 1} of {cohorts}")
            start, end = (survey.start + k * cohort for k in (number, number + 1))
            reader.read(start, end, rows)
        progress("shares of classes")
        shares = _shares(log, survey, reader, cohort, counts)
    return Replay(
        rows=survey.rows,
        labelled=survey.labelled,
        late=reader.late,
        immature=reader.immature,
        maturity=horizon,
        maturity_from="delays" if chosen.maturity is None else "given",
        cohort=cohort,
        reference=int(reference.sum()),
        reference_from="log" if card is None else "calibrator",
        state=reader.events[-1].status.state if reader.events else "unverified",
        events=reader.events,
        windows=reader.windows,
        class_shares=shares,
    )


@dataclass
class _Reader:
    """Feeds a monitor with matured cohorts, and notes what it says."""

    monitor: Monitor
    edges: NDArray[np.float64]
    horizon: float
    #: The last time in the log: what matures later is too young.
    end: float
    late: int = 0
    immature: int = 0
    events: list[Event] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)

    def read(self, start: float, end: float, rows: Rows) -> None:
        """Take the cohort of predictions from `start` until before `end`, if it has matured."""
        # Without waiting, the last cohort has matured, although it ends after the last prediction.
        if self.horizon > 0 and end + self.horizon > self.end:
            self.immature += len(rows.time)
            return
        on_time = rows.delay <= self.horizon
        self.late += int(np.count_nonzero(rows.delay > self.horizon))
        self.monitor.add(start, end, _parts(rows, on_time, self.edges))
        status = self.monitor.assess(end)
        if not self.events or status.state != self.events[-1].status.state:
            self.events.append(Event(_time_of(status, end), status))
        evidence = status.evidence.to_dict()
        self.windows.append({"start": start, "time": end, "state": status.state, **evidence})


def _cut(survey: Survey, cohort: float | None) -> tuple[float, int]:
    """Return the seconds of a cohort, and how many cohorts there are."""
    span = survey.last - survey.start
    if cohort is None:
        wanted = min(_COHORTS, max(survey.labelled // _LABELS, 1))
        # The last prediction is in the last cohort, whose end is not part of it.
        return (math.nextafter(span / wanted, math.inf), wanted) if span > 0 else (1.0, 1)
    cohorts = math.floor(span / cohort) + 1
    legal = cohorts <= _MOST_COHORTS
    accepted = f"at least {span / _MOST_COHORTS:.3g}, which makes {_MOST_COHORTS:,} cohorts"
    check_option("cohort", cohort, legal, accepted)
    return cohort, cohorts


def _reference_rows(survey: Survey) -> int:
    return int(min(survey.rows, max(_FEWEST, min(_MOST, _REFERENCE * survey.rows))))


def _first_cohorts(survey: Survey, counts: NDArray[np.int64]) -> int:
    """Return how many cohorts the first predictions are in, that stand for the calibration set."""
    return int(np.searchsorted(np.cumsum(counts), _reference_rows(survey))) + 1


def _shares(
    log: Log, survey: Survey, reader: _Reader, cohort: float, counts: NDArray[np.int64]
) -> ClassShares | None:
    """Compare the last window with the first predictions."""
    last = reader.windows[-1] if reader.windows else {}
    start, end = last.get("window_start"), last.get("window_end")
    if start is None or end is None:
        return None
    begun, upto = (round((time - survey.start) / cohort) for time in (start, end))
    window = Stretch(start, end, int(counts[begun:upto].sum()))
    many = _first_cohorts(survey, counts)
    first = Stretch(survey.start, survey.start + many * cohort, int(counts[:many].sum()))
    return class_shares(log, survey, first, window, reader.horizon)


def _reference(
    log: Log, survey: Survey, cohort: float, counts: NDArray[np.int64], card: Card | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return edges of bins, and the counts in them, of the card or of the first predictions."""
    if card is not None and card.confidences is not None:
        return reference_edges(card), np.array(card.confidences.counts, np.int64)
    wanted, upto = _reference_rows(survey), _first_cohorts(survey, counts)
    first: list[NDArray[np.float64]] = []
    for number, rows in log.slices(survey, cohort, counts):
        if number >= upto:
            break
        first.append(rows.confidence)
    confidences = np.concatenate(first)[:wanted]
    edges = quantile_edges(confidences)
    edges = edges[edges > 0]
    return edges, np.bincount(bin_indices(edges, confidences), minlength=len(edges) + 1)


def _monitor_options(options: ReplayOptions, survey: Survey, cohort: float) -> MonitorOptions:
    return MonitorOptions(
        alpha=options.alpha,
        tolerance=options.tolerance,
        objective=options.objective,
        least_labels=options.least_labels,
        window_labels=options.window_labels,
        # A log may be of years: a window is of some cohorts whatever their length.
        oldest_seconds=max(_WEEK, 24 * cohort),
        segments=len(survey.segments),
    )


def _parts(rows: Rows, on_time: NDArray[np.bool_], edges: NDArray[np.float64]) -> dict[str, Cohort]:
    if rows.segment is None:
        return {"": _part(rows, on_time, edges)}
    parts = {}
    for name in dict.fromkeys(rows.segment.tolist()):
        own = rows.segment == name
        parts[name] = _part(rows.some(own), on_time[own], edges)
    return parts


def _part(rows: Rows, on_time: NDArray[np.bool_], edges: NDArray[np.float64]) -> Cohort:
    traffic = CalibrationSums.empty(edges)
    traffic.add_traffic(rows.confidence)
    used = rows.some(on_time)
    return Cohort(traffic.traffic, used.confidence, used.correct, used.delay, used.time)


def _time_of(status: Status, end: float) -> float:
    """Return when a state began: a rejection at a prediction, all else where a cohort ends."""
    whose = status.evidence
    if status.segment is not None:
        whose = status.segments[status.segment].evidence
    if status.state == "stale" and whose.rejected_time is not None:
        return whose.rejected_time
    return end
