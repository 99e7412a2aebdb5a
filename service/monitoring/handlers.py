"""What can be said and asked about the watch over a model; no transport here."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from recalib.drift import CalibrationSums, ScoreTest, label_coverage, summarise_window
from recalib.errors import ConflictError
from recalib.registry import Candidate, CohortRow, MonitorRow, Transaction
from recalib.registry import Model as ModelRow
from service.access.authenticator import current_principal
from service.idempotency import EmptyRequest, once
from service.jobs.schemas import Job
from service.models.schemas import Model
from service.monitoring.schemas import (
    CandidateDrop,
    CandidateReport,
    MonitoringEvent,
    MonitoringReport,
    MonitoringSettings,
    SegmentReport,
    WindowReport,
)
from service.predict.loaded_calibrators import CHAMPION
from service.times import iso

__all__ = ["REFIT", "create_refit", "drop_candidate", "get_monitoring", "set_monitoring"]

log = logging.getLogger(__name__)

#: The kind of job; `training.refit_job` does it.
REFIT = "refit"
#: How much of the past is told.
_MOST_WINDOWS, _MOST_EVENTS = 48, 100


def get_monitoring(tx: Transaction, model: str) -> MonitoringReport:
    """Return how a model's champion holds up, as the last look at it found.

    Raises
    ------
    NotFoundError: no such model.
    """
    owner = tx.models.get(model)
    champion = tx.aliases.find(owner, CHAMPION)
    version = None if champion is None else champion.version
    row = None if version is None else tx.monitors.find(owner, version)
    status = _UNSEEN if row is None else row.status
    nobody = "the model has no champion, so that nothing is watched"
    return MonitoringReport(
        model=owner.name,
        version=version,
        state=status["state"],
        since=_time(status["since"]),
        reason=nobody if version is None else status["reason"],
        evidence=status["evidence"],
        onset=_time(status["onset"]),
        segments=[
            SegmentReport(
                segment=name, state=one["state"], reason=one["reason"], evidence=one["evidence"]
            )
            for name, one in status["segments"].items()
        ],
        windows=[] if row is None else _windows(tx, owner, row),
        late_labels=0 if row is None else row.late,
        assessed_at=None if row is None else iso(row.assessed_at),
        events=[
            MonitoringEvent(
                at=iso(one.at),
                version=one.version,
                kind=one.kind,
                actor=one.actor,
                reason=one.reason,
                evidence=one.evidence,
            )
            for one in tx.monitors.events(owner, _MOST_EVENTS)
        ],
        candidate=_candidate(tx.candidates.latest(owner)),
        captured_rows=tx.captures.totals(owner)[0],
    )


def create_refit(tx: Transaction, model: str, key: str | None) -> Job:
    """Ask for a candidate; where one is being fitted, return that job.

    Raises
    ------
    NotFoundError: no such model.
    ConflictError: it has no champion to be fitted anew.
    """
    owner = tx.models.get(model)
    if tx.aliases.find(owner, CHAMPION) is None:
        raise ConflictError(f"model {model!r} has no champion to be fitted anew")
    payload = {"model": owner.name, "reason": "somebody has asked for it"}

    def act() -> Job:
        job = tx.jobs.enqueue(REFIT, payload, model=owner, unique=f"refit {owner.id}")
        tx.audit.record(current_principal().name, "create_refit", owner.name, job.id)
        return Job.of(job)

    return once(tx, key, f"create_refit {model}", EmptyRequest(), 202, Job, act)


def drop_candidate(
    tx: Transaction, model: str, drop: CandidateDrop, actor: str, key: str | None
) -> CandidateReport:
    """Give a candidate up, whatever the comparison says; the champion goes on.

    One that has been dropped already stays so, and nothing is written then.

    Raises
    ------
    NotFoundError: no such model, or a version that was never a candidate.
    ConflictError: it serves, or did: rolling back is `set_alias`.
    """
    owner = tx.models.get(model)
    scope = f"drop_candidate {model}"
    act = partial(_dropped, tx, owner, drop, actor)
    return once(tx, key, scope, drop, 200, CandidateReport, act)


def _dropped(tx: Transaction, owner: ModelRow, drop: CandidateDrop, actor: str) -> CandidateReport:
    model, version = owner.name, drop.version
    before = tx.candidates.get(owner, version)
    champion = tx.aliases.find(owner, CHAMPION)
    if before.verdict == "promoted" or (champion is not None and champion.version == version):
        raise ConflictError(
            f"version {version} of {model!r} has been promoted; to roll back, let the champion be "
            f"{before.champion} again"
        )
    if tx.candidates.drop(owner, version):
        tx.monitors.record(
            owner, version, "dropped", actor, drop.reason or "somebody has dropped it"
        )
        fields = {"action": "candidate_dropped", "model": owner.name, "version": version}
        log.info("Candidate %d of %s is dropped by hand.", version, owner.name, extra=fields)
    return _told(tx.candidates.get(owner, version))


def set_monitoring(
    tx: Transaction, model: str, settings: MonitoringSettings, key: str | None
) -> Model:
    """Say what of a model is watched, and how, from now on.

    Server processes follow within seconds. Another `alpha` or `tolerance`, or a segment more,
    begins the test anew, with what the tests before it have left of `alpha`.

    Raises
    ------
    NotFoundError: no such model.
    InputError: segments that cannot be.
    ConflictError: segments that would change their numbers, which ids carry.
    """
    tx.models.get(model)

    def act() -> Model:
        changed = Model.of(tx.models.set_monitoring(model, settings.monitoring()))
        tx.audit.record(
            current_principal().name, "set_monitoring", model, model, settings.model_dump_json()
        )
        return changed

    return once(tx, key, f"set_monitoring {model}", settings, 200, Model, act)


_UNSEEN: dict[str, Any] = {
    "state": "unverified",
    "since": None,
    "reason": "nothing has been looked at yet",
    "evidence": {},
    "onset": None,
    "segments": {},
}


def _candidate(row: Candidate | None) -> CandidateReport | None:
    return None if row is None else _told(row)


def _told(row: Candidate) -> CandidateReport:
    test = ScoreTest(alpha=row.alpha)
    if row.state:
        test.restore(row.state)
    return CandidateReport.model_validate(
        {
            "version": row.version,
            "verdict": row.verdict,
            "began_at": iso(row.began_at),
            "evidence": test.summary(),
        }
    )


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


def _windows(tx: Transaction, model: ModelRow, row: MonitorRow) -> list[WindowReport]:
    segments = len(model.monitoring.segments) + 1
    cohorts = tx.monitors.cohorts(model, row.version, 0.0, _MOST_WINDOWS * segments)
    starts = sorted({one.started_at for one in cohorts}, reverse=True)
    # The oldest may have been cut off between its segments.
    if len(cohorts) == _MOST_WINDOWS * segments and len(starts) > 1:
        starts.pop()
    return [
        _window([one for one in cohorts if one.started_at == start])
        for start in starts[:_MOST_WINDOWS]
    ]


def _window(cohorts: Iterable[CohortRow]) -> WindowReport:
    first, *others = cohorts
    sums = CalibrationSums.from_dict(first.sums)
    for one in others:
        sums.merge(CalibrationSums.from_dict(one.sums))
    covered = label_coverage(sums)
    share = None if covered is None else covered.share
    measured = {**summarise_window(sums, weighting="traffic").to_dict(), "coverage": share}
    return WindowReport(start=iso(first.started_at), end=iso(first.ended_at), measured=measured)
