"""Replay: run the monitor over the cohorts of a log, as it would have run at the time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.core.card import Card, ConfidenceHistogram
from recalib.core.class_names import check_class_names
from recalib.core.executors import Cluster, open_workers
from recalib.core.field_types import Interval, check_fields
from recalib.core.html_table import html_table
from recalib.core.monitoring_settings import EvidenceSettings
from recalib.core.options import check_option
from recalib.core.time_text import time_text
from recalib.core.watched_classes import watched_indices
from recalib.drift import (
    CalibrationSums,
    ClassEvidence,
    Monitor,
    MonitorOptions,
    Status,
    quantile_edges,
)
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.target import Target
from recalib.errors import InputError
from recalib.files import Task
from recalib.replay.adapted_log import adapted_rows
from recalib.replay.class_shares import ClassShares, Period, class_shares, shares_of
from recalib.replay.cohorts import class_rows, class_traffic, cohorts_by_promise, cohorts_by_segment
from recalib.replay.columns import LogRows
from recalib.replay.log import Log
from recalib.replay.log_files import LogSource
from recalib.replay.promises import Promises, monitored_promises, promises_of
from recalib.replay.reliability import reliability_of_periods
from recalib.replay.segment_search import SegmentSearch, search_segments
from recalib.replay.splits import split_of
from recalib.replay.survey import Survey
from recalib.replay.survey_files import survey_on_workers
from recalib.shift import AdaptationSummary, AdaptedStream
from recalib.stats.groups import group_counts

#: Default cohorts of a log: at most 300, with 50 labels on average.
_COHORTS, _LABELS = 300, 50
_MAX_COHORTS = 10_000
#: Share of labels that arrive within the default maturity.
_MATURED = 0.99
#: The first predictions stand for the calibration set: this share, with a minimum and a maximum.
_REFERENCE_SHARE, _MIN_REFERENCE, _MAX_REFERENCE = 0.1, 1_000, 100_000
_WEEK = 7 * 86_400.0


@dataclass(frozen=True)
class ReplayOptions(EvidenceSettings):
    """Options of the monitor and of the cohorts.

    Examples
    --------
    >>> from recalib.replay import ReplayOptions
    >>> ReplayOptions(cohort=3600.0, tolerance=0.01).alpha
    0.05
    """

    #: Maturity in seconds, from the end of a cohort to its assessment; by default the time in which
    #: 99% of the labels arrive.
    maturity: Annotated[float, Interval(ge=0)] | None = None
    #: Length of a cohort in seconds; by default there are 300 cohorts, or fewer with few labels.
    cohort: Annotated[float, Interval(gt=0)] | None = None
    #: Columns whose values are tried as segments.
    find_segments: tuple[str, ...] = ()
    #: Classes to monitor, see `class_indices`: names and indices, or ("all",). A multiclass log
    #: then needs the columns `probabilities` and `label`.
    classes: tuple[str, ...] = ()
    #: `multilabel` if a row has any number of labels, see `Log`.
    task: Task = "multiclass"
    #: Names of the classes, in their order, which labels and columns of probabilities may have; by
    #: default those of the card.
    class_names: tuple[str, ...] = ()
    #: `label_shift`: the monitor reads answers that are adapted to the class shares of now, see
    #: `recalib.shift`. A multiclass log then needs the columns `probabilities` and `label`.
    adapt: Literal["none", "label_shift"] = "none"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class StateChange:
    """A change of state, at a prediction time in seconds."""

    time: float
    status: Status

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON."""
        status = self.status.to_dict()
        del status["since"], status["segments"]
        return {"time": self.time, **status}


@dataclass(frozen=True, repr=False)
class Replay:
    """The result of a replay."""

    rows: int
    labelled: int
    #: Number of labels that arrived after the maturity; they are not used.
    late: int
    #: Number of predictions in cohorts that had not matured at the end of the log; not used.
    immature: int
    #: Maturity in seconds, and its source: the delays in the log or the caller.
    maturity: float
    maturity_from: Literal["delays", "given"]
    cohort: float
    #: The forms of `time` and `label_time` in the log, such as `milliseconds`, see `seconds_of`.
    times: dict[str, str]
    #: The largest acceptable ECE, of the options.
    objective: float
    #: Number of reference rows, and their source: the calibration set or the first predictions.
    reference: int
    reference_from: Literal["calibrator", "log"]
    #: The class-wise evidence at the end, None without `classes`.
    classes: ClassEvidence | None
    #: The last state; `unverified` if no cohort has matured.
    state: str
    #: What was monitored: P(y = 1) if the log has the probabilities of two classes, otherwise the
    #: confidence.
    target: Target
    events: list[StateChange]
    #: The evidence after each matured cohort.
    windows: list[dict[str, Any]] = field(repr=False)
    #: Bins before and after `onset`, see `reliability_of_periods`; one period without an onset.
    reliability: list[dict[str, Any]] = field(default_factory=list, repr=False)
    #: None without probabilities, or if the last window overlaps the first rows.
    class_shares: ClassShares | None = None
    #: None without `find_segments`.
    segment_search: SegmentSearch | None = None
    #: None without `adapt`.
    adaptation: AdaptationSummary | None = None

    def __repr__(self) -> str:
        return f"<Replay of {self.rows} predictions, {self.labelled} labels: {self.state}>"

    def _repr_html_(self) -> str:
        rows = [
            (time_text(event.time), event.status.state, event.status.reason)
            for event in self.events
        ]
        caption = f"{self.rows:,} predictions, {self.labelled:,} labels: now {self.state}"
        return html_table(caption, ("prediction time", "state", "why"), rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON."""
        search = self.segment_search
        return {
            "state": self.state,
            "rows": self.rows,
            "labelled": self.labelled,
            "late": self.late,
            "immature": self.immature,
            "maturity": {"seconds": self.maturity, "from": self.maturity_from},
            "cohort_seconds": self.cohort,
            "times": self.times,
            "reference_rows": self.reference,
            "reference_from": self.reference_from,
            "target": self.target,
            "classes": None if self.classes is None else self.classes.to_dict(),
            "class_shares": None if self.class_shares is None else self.class_shares.to_dict(),
            "segment_search": None if search is None else search.to_dict(),
            "adaptation": None if self.adaptation is None else asdict(self.adaptation),
            "events": [event.to_dict() for event in self.events],
            "windows": self.windows,
            "reliability": self.reliability,
        }


def replay(
    source: LogSource,
    options: ReplayOptions | None = None,
    progress: Callable[[str], None] = lambda text: None,
    card: Card | None = None,
    cluster: Cluster = None,
) -> Replay:
    """Return the states that the monitor would have had over a log, cohort by cohort.

    A cohort is assessed after the maturity; later labels are not used. Cohorts that have not
    matured at the end of the log are left out. All times are prediction times: a state that begins
    at time t concerns predictions until t and would have been known one maturity later.

    Without a card, the first tenth of the predictions is the reference: bins are at its quantiles,
    and later probabilities are compared with it. It is monitored like the rest.
    So it is with the card of an earlier version, which has no histogram of P(y = 1), if the log has
    the probabilities of two classes.

    Parameters
    ----------
    source: a file (Parquet, CSV, TSV, JSON lines), a folder, a glob, a URL, several of these, or an
        open file.
    card: the card of the calibrator; its calibration set then gives the bins and the reference.
    cluster: as in `recalib.core.executors`: where the first pass, which reads and checks all
        columns, is done, a file at a time; the monitor is in this process. The result does not
        depend on it. None: this process.

    Raises
    ------
    InputError: the log cannot be read or has an invalid row; an option is out of range; the card
        has no confidence histogram, or another number of classes than the log.
    UnavailableError: the cluster cannot be reached, or its workers end.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> time, correct = 60.0 * np.arange(400), np.arange(400) % 10 < 9
    >>> columns = {"time": time, "confidence": np.full(400, 0.9), "correct": correct}
    >>> pq.write_table(pa.table(columns), "log.parquet")
    >>> from recalib.replay import ReplayOptions, replay
    >>> replay("log.parquet", ReplayOptions(cohort=3600.0, maturity=0.0)).state
    'fresh'
    """
    settings = options or ReplayOptions()
    is_multilabel, adapts = settings.task == "multilabel", settings.adapt == "label_shift"
    if is_multilabel and adapts:
        accepted = "none: a multilabel row has no class shares"
        raise InputError("adapt", found=settings.adapt, accepted=accepted)
    if card is not None and (is_multilabel or card.task != settings.task):
        accepted = "none: the first predictions of a multilabel log are its reference"
        if not is_multilabel:
            accepted = "a calibrator of rows with one class each"
        raise InputError("calibrator", found=f"task {card.task}", accepted=accepted)
    if card is not None and card.confidences is None:
        found = "a card without the confidences of the calibration set"
        raise InputError(
            "calibrator", found=found, accepted="a calibrator fitted by a newer Recalib"
        )
    class_labels = settings.class_names or None
    if card is not None:
        class_labels = check_class_names(class_labels, card.classes, "class_names") or card.labels
    classes = len(class_labels or ()) or None if card is None else card.classes
    with Log(
        source,
        classes,
        settings.find_segments,
        with_labels=bool(settings.classes) or adapts,
        multilabel=is_multilabel,
        class_names=class_labels,
        promises=promises_of(card),
    ) as log:
        progress("reading")
        if cluster is None:
            survey = log.survey()
        else:
            with open_workers(cluster) as workers:
                survey = survey_on_workers(log, workers)
        splits = [split_of(log.schema.field(name), survey.rows) for name in settings.find_segments]
        horizon = (
            survey.delay_quantile(_MATURED) if settings.maturity is None else settings.maturity
        )
        cohort, cohorts = _cohorts(survey, settings.cohort)
        counts = log.counts(survey, cohort, cohorts)
        histogram = None if card is None else card.confidences
        if histogram is not None and (histogram.target != log.target or not any(histogram.counts)):
            histogram = None
        edges, reference = _reference(log, survey, cohort, counts, histogram)
        watched: tuple[int, ...] = ()
        if settings.classes and log.classes is not None:
            watched = watched_indices(settings.classes, log.classes, class_labels)
            log.watch(watched)
        monitor_options = MonitorOptions(
            **settings.evidence_settings(),
            # A log may span years: a window holds at least 24 cohorts of any length.
            oldest_seconds=max(_WEEK, 24 * cohort),
            segments=len(survey.segments),
            classes=watched,
            target=log.target,
            **({} if card is None else monitored_promises(card)),
        )
        monitor = Monitor(
            edges,
            reference,
            monitor_options,
            class_labels,
            is_calibration_set=histogram is not None,
        )
        reader, adapted = _Reader(monitor, edges, horizon, survey.end, promises_of(card)), None
        if adapts:
            priors = shares_of(log, survey, _first_period(survey, cohort, counts))
            adapted = AdaptedStream(priors, horizon)
            log.keep_probabilities()
        for number, rows in log.slices(survey, cohort, counts):
            progress(f"cohort {number + 1} of {cohorts}")
            start, end = (survey.start + k * cohort for k in (number, number + 1))
            if adapted is not None:
                rows = adapted_rows(adapted, rows, monitor_options.classes, promises_of(card))
            reader.read(start, end, rows)
        progress("shares of classes")
        shares = _shares(log, survey, reader, cohort, counts)
        search = None
        if splits:
            progress("segments")
            levels = {"alpha": settings.alpha, "tolerance": settings.tolerance}
            search = search_segments(log, survey, splits, horizon, **levels)
        log.check_unchanged()
    return Replay(
        rows=survey.rows,
        labelled=survey.labelled,
        late=reader.late,
        immature=reader.immature,
        maturity=horizon,
        maturity_from="delays" if settings.maturity is None else "given",
        cohort=cohort,
        times=log.times,
        objective=settings.objective,
        reference=int(reference.sum()),
        reference_from="log" if histogram is None else "calibrator",
        classes=reader.classes,
        state=reader.events[-1].status.state if reader.events else "unverified",
        target=log.target,
        events=reader.events,
        windows=reader.windows,
        reliability=reliability_of_periods(reader.sums, _onset(reader.events)),
        class_shares=shares,
        segment_search=search,
        adaptation=None if adapted is None else adapted.summary(),
    )


@dataclass
class _Reader:
    """Add matured cohorts to a monitor and record its states."""

    monitor: Monitor
    edges: NDArray[np.float64]
    horizon: float
    #: The last time in the log; cohorts that mature later are left out.
    end: float
    promises: Promises
    late: int = 0
    immature: int = 0
    events: list[StateChange] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    #: The end and the sums of each cohort.
    sums: list[tuple[float, CalibrationSums]] = field(default_factory=list)
    #: The last evidence of the classes.
    classes: ClassEvidence | None = None

    def read(self, start: float, end: float, rows: LogRows) -> None:
        """Add the cohort of predictions from `start` until before `end` if it has matured."""
        # With maturity 0, the last cohort counts, although it ends after the last prediction.
        if self.horizon > 0 and end + self.horizon > self.end:
            self.immature += len(rows.time)
            return
        on_time = rows.delay <= self.horizon
        self.late += int(np.count_nonzero(rows.delay > self.horizon))
        options = self.monitor.options
        cohorts = cohorts_by_segment(rows, on_time, self.edges, options.target)
        for part in cohorts.values():
            self.sums.append((end, part.sums(self.edges)))
        watched = rows, on_time, options.classes
        promised = cohorts_by_promise(rows, on_time, self.promises)
        self.monitor.add(
            start, end, cohorts, class_rows(*watched), class_traffic(*watched), promised
        )
        status = self.monitor.assess(end)
        if not self.events or status.state != self.events[-1].status.state:
            self.events.append(StateChange(_time_of(status, end), status))
        self.classes = status.classes
        evidence = status.evidence.to_dict()
        self.windows.append(
            {
                "start": start,
                "time": end,
                "state": status.state,
                "may_be_selection": status.may_be_selection,
                **evidence,
            }
        )


def _cohorts(survey: Survey, cohort: float | None) -> tuple[float, int]:
    """Return the length of a cohort in seconds and the number of cohorts."""
    span = survey.last - survey.start
    if cohort is None:
        count = min(_COHORTS, max(survey.labelled // _LABELS, 1))
        # The end of a cohort is exclusive, and the last prediction must be in the last cohort.
        return (math.nextafter(span / count, math.inf), count) if span > 0 else (1.0, 1)
    cohorts = math.floor(span / cohort) + 1
    legal = cohorts <= _MAX_COHORTS
    accepted = f"at least {span / _MAX_COHORTS:.3g}, which makes {_MAX_COHORTS:,} cohorts"
    check_option("cohort", cohort, legal, accepted)
    return cohort, cohorts


def _reference_rows(survey: Survey) -> int:
    return int(
        min(survey.rows, max(_MIN_REFERENCE, min(_MAX_REFERENCE, _REFERENCE_SHARE * survey.rows)))
    )


def _first_cohorts(survey: Survey, counts: NDArray[np.int64]) -> int:
    """Return the number of cohorts that hold the reference predictions."""
    return int(np.searchsorted(np.cumsum(counts), _reference_rows(survey))) + 1


def _shares(
    log: Log, survey: Survey, reader: _Reader, cohort: float, counts: NDArray[np.int64]
) -> ClassShares | None:
    """Compare the last window with the first predictions."""
    last = reader.windows[-1] if reader.windows else {}
    start, end = last.get("window_start"), last.get("window_end")
    if start is None or end is None:
        return None
    first_cohort, end_cohort = (round((time - survey.start) / cohort) for time in (start, end))
    window = Period(start, end, int(counts[first_cohort:end_cohort].sum()))
    first = _first_period(survey, cohort, counts)
    return class_shares(log, survey, first, window, reader.horizon)


def _first_period(survey: Survey, cohort: float, counts: NDArray[np.int64]) -> Period:
    number = _first_cohorts(survey, counts)
    return Period(survey.start, survey.start + number * cohort, int(counts[:number].sum()))


def _reference(
    log: Log,
    survey: Survey,
    cohort: float,
    counts: NDArray[np.int64],
    histogram: ConfidenceHistogram | None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the edges and counts of the reference histogram."""
    if histogram is not None:
        return np.array(histogram.edges), np.array(histogram.counts, np.int64)
    reference_rows, upto = _reference_rows(survey), _first_cohorts(survey, counts)
    first: list[NDArray[np.float64]] = []
    for number, rows in log.slices(survey, cohort, counts):
        if number >= upto:
            break
        first.append(rows.pairs(log.target)[0])
    confidences = np.concatenate(first)[:reference_rows]
    edges = quantile_edges(confidences)
    edges = edges[edges > 0]
    return edges, group_counts(left_closed_bins(edges, confidences), len(edges) + 1)


def _onset(events: list[StateChange]) -> float | None:
    """Return the start of the drift of the first stale state, None without one."""
    return next((e.status.onset for e in events if e.status.state == "stale"), None)


def _time_of(status: Status, end: float) -> float:
    """Return the start of a state: the prediction of a rejection, or the end of a cohort."""
    evidence = status.evidence
    if status.segment is not None:
        evidence = status.segments[status.segment].evidence
    if status.state == "stale" and evidence.rejected_time is not None:
        return evidence.rejected_time
    return end
