"""Operations on the monitoring of a model, independent of the transport."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from recalib.contract.alerts import Alert
from recalib.contract.base import utc
from recalib.contract.monitoring import (
    CandidateReport,
    HistoryEntry,
    HistoryPage,
    MonitoringReport,
    WindowReport,
)
from recalib.drift import CalibrationSums, ScoreTest, label_coverage, summarise_window
from recalib.errors import ConflictError, InputError
from recalib.registry import Assessment, Challenger, CohortRow, MonitorRow, Transaction
from recalib.registry import Model as ModelRow
from recalib.registry.alerts import next_command
from recalib.shift import Shadow
from service.monitoring.schemas import CandidateDrop
from service.pagination import decode_cursor, page_of
from service.serving.loaded_calibrators import CHAMPION
from service.validation_warnings import warnings_of

log = logging.getLogger(__name__)

#: Limits of a monitoring report.
_MAX_WINDOWS, _MAX_EVENTS = 48, 100


def get_monitoring(tx: Transaction, model: str, server: str = "") -> MonitoringReport:
    """Return the calibration state of a model's champion, as of its last assessment.

    Parameters
    ----------
    server: URL of the server, for the command of the alert.

    Raises
    ------
    NotFoundError: the model does not exist.
    """
    owner = tx.models.get(model)
    champion = tx.aliases.find(owner, CHAMPION)
    version = None if champion is None else champion.version
    row = None if version is None else tx.monitors.find(owner, version)
    status = _UNSEEN if row is None else row.status
    reason = status["reason"]
    if version is not None and row is None:
        reason = _first_assessment(tx, owner, version)
    if version is None:
        reason = "the model has no champion to monitor"
    candidate = tx.candidates.latest(owner)
    return MonitoringReport.model_validate(
        {
            # Statuses of earlier versions do not have these.
            "may_be_selection": False,
            "classes": None,
            **status,
            "model": owner.name,
            "version": version,
            "reason": reason,
            "alert": _alert(tx, owner, status, server),
            "segments": [
                {"may_be_selection": False, **part, "segment": name}
                for name, part in status["segments"].items()
            ],
            "windows": [] if row is None else _windows(tx, owner, row),
            "late_labels": 0 if row is None else row.late,
            "assessed_at": None if row is None else row.assessed_at,
            "events": tx.monitors.events(owner, _MAX_EVENTS),
            "candidate": None if candidate is None else _candidate_report(candidate),
            "adaptation": _adaptation(owner, row),
            "captured_rows": tx.captures.totals(owner)[0],
            "replayed_through": None if row is None else row.replayed_through,
            "warnings": warnings_of(tx, owner, version),
        }
    )


def get_history(
    tx: Transaction, model: str, version: int | None, limit: int, cursor: str | None
) -> HistoryPage:
    """Return a page of the states of a model's versions after each cohort, newest first.

    Parameters
    ----------
    version: of this version alone; None: of all.

    Raises
    ------
    NotFoundError: the model does not exist.
    InputError: `cursor` is not of a page of this list.
    """
    owner = tx.models.get(model)
    rows = tx.monitors.assessments(owner, limit + 1, version, _history_position(cursor))
    cohorts = tx.monitors.cohorts_at(owner, rows[:limit])
    ratio = owner.monitoring.selection_ratio

    def entry(row: Assessment) -> HistoryEntry:
        parts = cohorts[row.started_at, row.version]
        measured = _window(parts, ratio).measured if parts else {}
        times = {"start": row.started_at, "end": row.ended_at}
        return HistoryEntry.model_validate({**vars(row), **times, "measured": measured})

    return page_of(HistoryPage, rows, limit, lambda row: f"{row.started_at!r}_{row.version}", entry)


def _history_position(cursor: str | None) -> tuple[float, int] | None:
    """Return start and version of the last entry of the previous page."""
    position = decode_cursor(cursor)
    if position is None:
        return None
    start, _, version = position.rpartition("_")
    try:
        return float(start), int(version)
    except ValueError:
        accepted = "next_cursor of a page"
        raise InputError("cursor", found="something else", accepted=accepted) from None


def drop_candidate(
    tx: Transaction, owner: ModelRow, drop: CandidateDrop, actor: str
) -> CandidateReport:
    """Drop a candidate, regardless of the comparison; the champion continues to serve.

    Idempotent: nothing is written for a candidate that has been dropped before.

    Raises
    ------
    NotFoundError: the version was never a candidate.
    ConflictError: the candidate has been promoted; `set_alias` rolls back.
    """
    model, version = owner.name, drop.version
    # Dropped first: a worker that promotes it afterwards finds it dropped.
    is_dropped = tx.candidates.drop(owner, version)
    current = tx.candidates.get(owner, version)
    champion = tx.aliases.find(owner, CHAMPION)
    if current.verdict == "promoted" or (champion is not None and champion.version == version):
        raise ConflictError(
            f"version {version} of {model!r} has been promoted; to roll back, set the champion to "
            f"version {current.champion}"
        )
    if is_dropped:
        tx.monitors.record(owner, version, "dropped", actor, drop.reason or "dropped by request")
        fields = {"action": "candidate_dropped", "model": owner.name, "version": version}
        log.info("Candidate %d of %s is dropped by request.", version, owner.name, extra=fields)
    return _candidate_report(current)


def _first_assessment(tx: Transaction, model: ModelRow, version: int) -> str:
    """Return when a version that has not been assessed yet will be."""
    settings = model.monitoring
    cohort, maturity = settings.cohort_seconds, settings.maturity_seconds
    first = tx.traffic.first(model, version, 0.0)
    if first is None:
        return (
            "not assessed yet: there are no predictions; the first assessment comes at most "
            f"{cohort + maturity:,.0f} seconds after them (cohort_seconds and maturity_seconds)"
        )
    at = utc((first // cohort + 1) * cohort + maturity)
    return (
        f"not assessed yet: the first assessment comes after {at:%Y-%m-%d %H:%M} UTC, with the "
        f"labels of its predictions until then; a state needs at least {settings.least_labels}"
    )


_UNSEEN: dict[str, Any] = {
    "state": "unverified",
    "since": None,
    "reason": "not assessed yet",
    "evidence": {},
    "onset": None,
    "segments": {},
}


def _alert(tx: Transaction, model: ModelRow, status: dict[str, Any], server: str) -> Alert | None:
    """Return the alert of a status with the command of now: the candidate may have changed."""
    if status.get("alert") is None:
        return None
    alert = Alert.model_validate(status["alert"])
    return alert.model_copy(update={"command": next_command(tx, model, alert, server)})


def _adaptation(model: ModelRow, row: MonitorRow | None) -> dict[str, Any] | None:
    if row is None or row.adaptation is None or model.monitoring.adaptation == "none":
        return None
    return Shadow.of(row.adaptation).report()


def _candidate_report(row: Challenger) -> CandidateReport:
    test = ScoreTest(alpha=row.alpha)
    if row.state:
        test.restore(row.state)
    return CandidateReport.model_validate({**vars(row), "evidence": test.summary()})


def _windows(tx: Transaction, model: ModelRow, row: MonitorRow) -> list[WindowReport]:
    segments, ratio = len(model.monitoring.segments) + 1, model.monitoring.selection_ratio
    cohorts = tx.monitors.cohorts(model, row.version, 0.0, _MAX_WINDOWS * segments)
    starts = sorted({cohort.started_at for cohort in cohorts}, reverse=True)
    # The limit may cut between the segments of the oldest window.
    if len(cohorts) == _MAX_WINDOWS * segments and len(starts) > 1:
        starts.pop()
    return [
        _window([cohort for cohort in cohorts if cohort.started_at == start], ratio)
        for start in starts[:_MAX_WINDOWS]
    ]


def _window(cohorts: Iterable[CohortRow], selection_ratio: float) -> WindowReport:
    first, *rest = cohorts
    sums = CalibrationSums.from_dict(first.sums)
    for cohort in rest:
        sums = sums.merge(CalibrationSums.from_dict(cohort.sums))
    covered = label_coverage(sums)
    share = None if covered is None else covered.share
    summary = summarise_window(sums, weighting="traffic", selection_ratio=selection_ratio)
    start, end = utc(first.started_at), utc(first.ended_at)
    measured = {**summary.to_dict(), "coverage": share}
    return WindowReport(start=start, end=end, measured=measured, replayed=first.replayed)
