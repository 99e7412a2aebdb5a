"""Read a log with the cohorts, segments and classes of a model's monitoring settings."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from recalib.drift import ClassRows, ClassTraffic, Cohort
from recalib.drift.target import Target
from recalib.errors import InputError
from recalib.files import Task
from recalib.replay.cohorts import class_rows, class_traffic, cohort_of_rows, cohorts_by_promise
from recalib.replay.columns import LogRows
from recalib.replay.log import Log
from recalib.replay.promises import Promises
from recalib.replay.survey import Survey

#: The results of a replay are in memory until it ends.
_MAX_COHORTS = 10_000


@dataclass(frozen=True)
class ModelLogOptions:
    """What a model and its monitoring settings say about the rows of a log."""

    #: K.
    classes: int
    cohort_seconds: float
    maturity_seconds: float
    #: Names of the segments; the first has the rows without a segment.
    segments: tuple[str, ...] = ("",)
    #: Indices of the watched classes; a multiclass log then needs `probabilities` and `label`.
    watched: tuple[int, ...] = ()
    #: That of the model. A row of a multilabel log is a prediction of the label that it draws.
    task: Task = "multiclass"
    #: Added to all times of the log: a multiple of `cohort_seconds`, so that cohorts stay the same.
    shift_seconds: float = 0.0
    #: What the model's version is monitored by; P(y = 1) needs `probabilities`.
    target: Target = "top_label"
    #: Names of the classes, if they are known: see `LogSchema`.
    class_names: tuple[str, ...] = ()
    #: Promises of the version, which are monitored.
    promises: Promises = field(default_factory=Promises)


class LogSummary(NamedTuple):
    """The rows of a log, and its cohorts that have matured at its last time."""

    rows: int
    labelled: int
    #: The first prediction, and the last prediction or label, in seconds.
    start: float
    end: float
    #: The end of the last matured cohort. Later predictions are not used.
    through: float
    #: Number of matured cohorts, with and without rows.
    cohorts: int
    #: The forms of `time` and `label_time`, see `seconds_of`.
    times: dict[str, str]


class LogCohort(NamedTuple):
    """The predictions of a time span, whose labels have matured."""

    start: float
    end: float
    rows: int
    #: Number of labels that arrived too late to count.
    late: int
    #: By segment, also those without rows.
    parts: dict[str, Cohort]
    class_rows: ClassRows | None
    class_traffic: ClassTraffic | None
    promised: dict[str, Cohort]


class ModelLog:
    """An open log; use it as a context manager.

    Cohorts begin at multiples of their length, as those of live predictions. A log has matured
    cohorts only until one maturity before its last time: later labels are missing from it.

    Parameters
    ----------
    source: the path of a Parquet or CSV file, or an open one, with the columns of `Log`.

    Raises
    ------
    InputError: here or while reading: the file, a column or a row is not valid.
    """

    def __init__(self, source: Path | BinaryIO, options: ModelLogOptions) -> None:
        self.options = options
        multilabel = options.task == "multilabel"
        with_labels = bool(options.watched)
        self._log = Log(
            source,
            options.classes,
            with_labels=with_labels,
            multilabel=multilabel,
            class_names=options.class_names,
            promises=options.promises,
        )
        self._survey: Survey | None = None

    def __enter__(self) -> Self:
        self._log.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._log.__exit__(*error)

    def survey(self, step: Callable[[int], object] = lambda rows: None) -> LogSummary:
        """Check every row, and return what the log holds.

        Parameters
        ----------
        step: called with the number of rows read, after each part.

        Raises
        ------
        InputError: an invalid row, no probabilities where P(y = 1) is monitored, an unknown
            segment, no matured cohort, or too many cohorts.
        """
        if self.options.target == "positive_class" and not self._log.has_probabilities:
            accepted = "P(y = 1), by which this version is monitored"
            raise InputError("probabilities", found="no column", accepted=accepted)
        survey = self._read(step)
        _check_segments(survey.segments, self.options.segments)
        if survey.start < 0:
            found = f"{survey.start:g} seconds, before 1970"
            raise InputError("time", found=found, accepted="seconds since 1970-01-01 UTC")
        shift, length = self.options.shift_seconds, self.options.cohort_seconds
        total = self._count(survey)
        if total > _MAX_COHORTS:
            found = f"{total:,} cohorts of {length:g} seconds"
            accepted = f"at most {_MAX_COHORTS:,}: longer cohorts, or a shorter log"
            raise InputError("cohort_seconds", found=found, accepted=accepted)
        maturity, first = self.options.maturity_seconds, self._first(survey)
        matured = min(total, math.floor((survey.end - maturity - first) / length))
        if matured < 1:
            found = f"{survey.end - survey.start:,.0f} seconds from the first time to the last"
            accepted = (
                f"enough for a cohort of {length:g} seconds that is `maturity_seconds`"
                f" = {maturity:g} old; the settings of the model's monitoring may be changed"
            )
            raise InputError("time", found=found, accepted=accepted)
        times = survey.start + shift, survey.end + shift
        through = first + shift + matured * length
        counts = survey.rows, survey.labelled
        return LogSummary(*counts, *times, through, matured, self._log.times)

    def cohorts(self, edges: NDArray[np.float64]) -> Iterator[LogCohort]:
        """Yield the matured cohorts that have rows, by time, in bounded memory.

        Parameters
        ----------
        edges: inner edges (B - 1,) of the confidence bins.
        """
        matured, survey = self.survey().cohorts, self._read()
        first, length = self._first(survey), self.options.cohort_seconds
        survey = dataclasses.replace(survey, start=first)
        counts = self._log.counts(survey, length, self._count(survey))
        if self.options.watched:
            self._log.watch(self.options.watched)
        for number, rows in self._log.slices(survey, length, counts):
            if number >= matured:
                return
            if len(rows.time):
                start = first + self.options.shift_seconds
                yield self._cohort(
                    start + number * length, start + (number + 1) * length, rows, edges
                )

    def _read(self, step: Callable[[int], object] = lambda rows: None) -> Survey:
        """Return the survey of the log, which is read once."""
        if self._survey is None:
            self._survey = self._log.survey(step)
        return self._survey

    def _first(self, survey: Survey) -> float:
        """Return the start of the first cohort, by the clock of the log."""
        length = self.options.cohort_seconds
        return math.floor(survey.start / length) * length

    def _count(self, survey: Survey) -> int:
        """Return the number of cohorts, matured or not."""
        return math.floor((survey.last - self._first(survey)) / self.options.cohort_seconds) + 1

    def _cohort(
        self, start: float, end: float, rows: LogRows, edges: NDArray[np.float64]
    ) -> LogCohort:
        shift, maturity = self.options.shift_seconds, self.options.maturity_seconds
        on_time = rows.delay <= maturity
        late = int(np.count_nonzero(rows.delay > maturity))
        of_classes = class_rows(rows, on_time, self.options.watched)
        if of_classes is not None:
            of_classes = dataclasses.replace(of_classes, times=of_classes.times + shift)
        rows = dataclasses.replace(rows, time=rows.time + shift)
        first, *declared = self.options.segments
        target = self.options.target
        parts = {first: cohort_of_rows(rows, on_time, edges, target)}
        if declared:
            names = np.full(len(rows.time), "") if rows.segment is None else rows.segment
            masks = {name: names == name for name in declared}
            masks = {first: names == ""} | masks
            parts = {
                name: cohort_of_rows(rows.select(mask), on_time[mask], edges, target)
                for name, mask in masks.items()
            }
        traffic = class_traffic(rows, on_time, self.options.watched)
        promised = cohorts_by_promise(rows, on_time, self.options.promises)
        return LogCohort(start, end, len(rows.time), late, parts, of_classes, traffic, promised)


def _check_segments(names: list[str], segments: tuple[str, ...]) -> None:
    """Raise `InputError` for a name that is not a declared segment."""
    declared = segments[1:]
    for name in names:
        if name and name not in declared:
            accepted = ", ".join(map(repr, declared)) or "null: the model has no segments"
            raise InputError("segment", found=f"{name!r:.80}", accepted=accepted)
