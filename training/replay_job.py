"""The replay job: load a log of the past into the monitoring of a version.

The log is read once, in bounded memory, and everything is written in the transaction that finishes
the job. A worker that is killed leaves nothing, and the next attempt begins again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.drift import CalibrationSums
from recalib.errors import ConflictError
from recalib.registry import Assessment, CohortRow, MonitorRow, Registry, Transaction
from recalib.replay import LogCohort, LogSummary, ModelLog, ModelLogOptions
from training.assessment import KEEP_SECONDS, Assessor, fixed_options, plain, segment_names
from training.checkpoint_blobs import sweep_job
from training.settings_replay import replay_settings
from training.worker import JobContext

#: The actor of replayed events.
_ACTOR = "replay"
#: Progress when every row is checked.
_CHECKED = 0.4
#: Attempts to write, if the monitoring job writes at the same time.
_ATTEMPTS = 3
#: Changes of state in the result of the job: the newest.
_MAX_EVENTS = 100


class ReplayRequest(msgspec.Struct, frozen=True):
    """The payload of a replay job."""

    model: str
    version: int
    #: N.
    rows: int
    #: Of the log.
    digest: str
    #: Added to all times of the log.
    shift_seconds: float


def run_replay(context: JobContext, pause: Callable[[], object] = lambda: None) -> None:
    """Add all matured cohorts of a log to the monitor of a version; or try other settings.

    Parameters
    ----------
    pause: called between two steps, so that a worker can run short jobs during a long replay.
    """
    if "settings" in context.payload:
        replay_settings(context, pause)
        return
    request = context.request(ReplayRequest)
    registry = context.registry
    attempt = _Attempt(registry, request)

    def step(fraction: float, verb: str, rows: int) -> None:
        pause()
        context.check_cancelled()
        context.progress(fraction, f"{verb}: {rows:,} of {request.rows:,} rows")

    step(0.0, "checking", 0)
    registry.blobs.verify(request.digest)
    stream = registry.blobs.open(request.digest)
    with ModelLog(stream, attempt.options) as model_log:
        summary = model_log.survey(
            lambda rows: step(_CHECKED * rows / request.rows, "checking", rows)
        )
        for cohort in model_log.cohorts(attempt.assessor.edges):
            attempt.add(cohort)
            fraction = _CHECKED + (1 - _CHECKED) * attempt.rows / request.rows
            step(fraction, "replaying", attempt.rows)
    for remaining in reversed(range(_ATTEMPTS)):
        try:
            with context.finishing() as tx:
                attempt.write(tx, summary)
                tx.jobs.succeed(context.lease, attempt.result(summary))
            break
        except ConflictError:
            if not remaining:
                raise
    sweep_job(registry, context.lease.job.id)


class _Attempt:
    """One attempt at a replay, with all that it will write."""

    def __init__(self, registry: Registry, request: ReplayRequest) -> None:
        self._request = request
        with registry.reading() as tx:
            self._model = tx.models.get(request.model)
            card = convert(tx.calibrators.get(self._model, request.version).card, Card)
            row = tx.monitors.find(self._model, request.version)
            number = tx.monitors.next_number(self._model) if row is None else row.number
            self._keep_from = tx.clock() - KEEP_SECONDS
        self._number = number
        self.assessor = Assessor(self._model, request.version, card, number, {})
        monitoring = self._model.monitoring
        self.options = ModelLogOptions(
            classes=self._model.classes,
            cohort_seconds=monitoring.cohort_seconds,
            maturity_seconds=monitoring.maturity_seconds,
            segments=tuple(segment_names(monitoring)),
            watched=self.assessor.classes,
            shift_seconds=request.shift_seconds,
            task=self._model.task,
            target=self.assessor.target,
            class_names=self._model.labels or (),
            promises=self.assessor.promises,
        )
        #: Number of rows in the cohorts that were added.
        self.rows = 0
        self._cohorts = self._late = 0
        self._state = "unverified"
        self._events: list[Assessment] = []
        self._assessments: list[Assessment] = []
        self._cohort_rows: list[CohortRow] = []

    def add(self, cohort: LogCohort) -> None:
        """Assess a cohort at the time when it matured."""
        span = cohort.start, cohort.end
        matured = cohort.end + self._model.monitoring.maturity_seconds
        assessment = self.assessor.add(
            *span,
            cohort.parts,
            cohort.class_rows,
            cohort.class_traffic,
            cohort.promised,
            now=matured,
        )
        assessment = replace(assessment, replayed=True)
        self.rows += cohort.rows
        self._late += cohort.late
        self._cohorts += 1
        if assessment.state != self._state:
            self._events.append(assessment)
            self._state = assessment.state
        # The monitoring job would delete older ones.
        if cohort.end >= self._keep_from:
            self._assessments.append(assessment)
            rows = self.assessor.cohort_rows(*span, cohort.parts)
            self._cohort_rows += [replace(row, replayed=True) for row in rows]

    def write(self, tx: Transaction, summary: LogSummary) -> None:
        """Write the monitor, its history and its events.

        Raises
        ------
        NotFoundError: the model was deleted or renamed meanwhile.
        ConflictError: the version has monitoring state.
        """
        model, version = tx.models.get(self._request.model), self._request.version
        tx.monitors.check_replay(model, version, summary.through)
        before = tx.monitors.find(model, version)
        number = tx.monitors.next_number(model) if before is None else before.number
        status = self.assessor.status
        if number != self._number:
            raise ConflictError(
                f"another version of {model.name!r} got its first monitoring state meanwhile;"
                " replay the log again"
            )
        row = MonitorRow(
            version=version,
            number=number,
            turn=1 if before is None else before.turn + 1,
            options=fixed_options(self._model.monitoring),
            through=summary.through,
            state=self.assessor.monitor.state(),
            status={} if status is None else plain(status.to_dict()),
            # Counters of `/metrics` grow with live labels only.
            totals=CalibrationSums.empty(self.assessor.edges).to_dict(),
            late=0,
            assessed_at=summary.through + self._model.monitoring.maturity_seconds,
            replayed_through=summary.through,
        )
        tx.monitors.save(model, row, self._cohort_rows, self._assessments)
        tx.monitors.count_late(model, version, self._late)
        for event in self._events:
            tx.monitors.record(
                model,
                version,
                event.state,
                _ACTOR,
                event.reason,
                event.evidence,
                replayed_at=event.assessed_at,
            )

    def result(self, summary: LogSummary) -> dict[str, Any]:
        """Return the result of the job."""
        return {
            "version": self._request.version,
            "rows": summary.rows,
            "labelled": summary.labelled,
            "late": self._late,
            "immature": summary.rows - self.rows,
            "cohorts": self._cohorts,
            "history": len(self._assessments),
            "through": summary.through,
            "times": summary.times,
            "state": self._state,
            "events": [
                {"time": event.assessed_at, "state": event.state, "reason": event.reason}
                for event in self._events[-_MAX_EVENTS:]
            ],
        }
