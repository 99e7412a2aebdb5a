"""The monitoring job: assess the calibration of each model's champion on matured predictions.

Predictions are read in cohorts, once their labels have had time to arrive. The state of the test,
the position up to which cohorts are read, and the resulting events are written in one transaction,
guarded by a turn number. A worker that is killed, or two workers at once, therefore count no cohort
twice and skip none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.drift import CalibrationSums, Status
from recalib.drift.monitor_state import warnings_in
from recalib.errors import ConflictError, UnavailableError
from recalib.registry import (
    Alias,
    Assessment,
    CohortRow,
    Model,
    MonitorRow,
    Registry,
    Transaction,
)
from recalib.registry.job_kinds import MONITOR, monitor_key
from training.alert import Links, make_alert
from training.assessment import (
    KEEP_SECONDS,
    Assessor,
    evidence_of,
    fixed_options,
    plain,
)
from training.checkpoint_blobs import sweep_checkpoints
from training.live_cohorts import LiveCohort, LiveCohorts
from training.refit_job import refit_is_due, request_refit
from training.retention import apply_retention
from training.shadow_adaptation import adapt_in_shadow
from training.shadow_comparison import compare
from training.worker import JobContext

log = logging.getLogger(__name__)

_CHAMPION = "champion"
#: The actor in the audit trail.
_ACTOR = "monitor"
#: Seconds after which numbers are written even if nothing has changed.
_REFRESH_SECONDS = 300.0
_PAGE = 500
_HOUR, _DAY = 3600, 86_400.0
#: Age in seconds at which traffic that has been read is merged into hours.
_COMPACT_AFTER = 2 * _DAY


def run_monitor(context: JobContext, links: Links | None = None) -> None:
    """Assess the champions of all models, or of the models of one shard.

    A failure of one model does not affect the others. A model is in the shard of its id modulo the
    number of shards.

    Also remove leftover checkpoints, and once an hour old traffic counts, sampled logits, what
    killed uploads left, and what is older than the retention settings of its model.

    Parameters
    ----------
    links: of alerts.
    """
    shard, shards = context.payload.get("shard", 0), context.payload.get("shards", 1)
    if shard == 0:
        sweep_checkpoints(context.registry)
    with context.registry.reading() as tx:
        key = monitor_key(shard, shards)
        hour, last = tx.clock() // _HOUR, tx.jobs.last_success(MONITOR, key)
    tidies = last is None or last // _HOUR < hour
    if tidies and shard == 0:
        context.registry.sweep()
    watched = cohorts = failed = 0
    for model in _models(context.registry):
        context.check_cancelled()
        if model.id % shards != shard:
            continue
        try:
            read = watch(context.registry, model, links)
            compare(context.registry, model)
            if tidies:
                tidy(context.registry, model)
                apply_retention(context.registry, model)
            adapt_in_shadow(context.registry, model)
        except UnavailableError:
            raise
        except Exception as error:  # other models must still be monitored
            failed += 1
            fields = {"action": "monitor_failed", "model": model.name}
            log.exception("Model %s cannot be monitored: %s", model.name, error, extra=fields)
            continue
        watched += read is not None
        cohorts += read or 0
    with context.finishing() as tx:
        result = {"models": watched, "cohorts": cohorts, "failed": failed}
        tx.jobs.succeed(context.lease, result)


def watch(registry: Registry, model: Model, links: Links | None = None) -> int | None:
    """Read all matured cohorts of a model's champion and update its state.

    Return the number of cohorts, or None for a model without a champion.
    """
    cohorts = 0
    while True:
        step = _step(registry, model, links or Links())
        if step is None:
            return None
        cohorts += step
        if step == 0:
            return cohorts


def tidy(registry: Registry, model: Model) -> None:
    """Compact and delete old traffic counts, and delete old sampled logits.

    Traffic of the champion is kept until it has been read; that of other versions may never be
    read.
    """
    with registry.reading() as tx:
        now = tx.clock()
        champion = tx.aliases.find(model, _CHAMPION)
        through = {} if champion is None else tx.monitors.through(model, [champion.version])
    read: dict[int | None, float] = {None: now - model.monitoring.maturity_seconds}
    read.update(through.items())
    with registry.transaction() as tx:
        for counts in (tx.traffic, tx.class_traffic):
            counts.delete(model, {v: min(now - KEEP_SECONDS, time) for v, time in read.items()})
            old = {v: min(now - _COMPACT_AFTER, time) for v, time in read.items()}
            counts.compact(model, old, _HOUR)
    with registry.transaction() as tx:
        tx.monitors.delete_cohorts(model, now - KEEP_SECONDS)
        deleted = tx.captures.delete(model, now - model.monitoring.capture_seconds)
    for digest in deleted:
        registry.blobs.remove(digest)


def _step(registry: Registry, model: Model, links: Links) -> int | None:
    """Read some matured cohorts; return their number, or None for a model without a champion."""
    # 1. What is stored, and the cohorts that have matured since.
    with registry.reading() as tx:
        model = tx.models.get(model.name)
        champion = tx.aliases.find(model, _CHAMPION)
        if champion is None:
            return None
        before, live = _read_state(tx, model, champion)
        cohorts = list(live.read(tx, before.through))
        served = live.served_counts(tx)
    assessor = live.assessor

    # 2. The state after them, and what follows from it.
    progress = _assess(registry, before, live, cohorts, served)
    status = assessor.monitor.assess(live.now, served)
    entered = status.state != before.status.get("state", "unverified")
    stale_numbers = live.now - before.assessed_at > _REFRESH_SECONDS
    through = cohorts[-1].end if cohorts else before.through
    # A state that a log of the past has left requests no refit: no live label supports it yet.
    is_replayed = before.replayed_through is not None and through <= before.replayed_through
    with registry.reading() as tx:
        state = "unverified" if is_replayed else status.state
        reason = refit_is_due(tx, model, state, live.now)
    if not (cohorts or entered or stale_numbers or reason or before.turn == 0):
        return 0

    # 3. All of it in one transaction, unless another worker was faster.
    written: dict[str, Any] = plain(status.to_dict())
    if state in ("suspect", "stale"):
        last = before.status.get("alert")
        written["alert"] = make_alert(
            registry, model, before.version, assessor, written, last, through, links
        )
    row = replace(
        before,
        turn=before.turn + 1,
        through=through,
        state=assessor.monitor.state(),
        status=written,
        totals=progress.totals.to_dict(),
        assessed_at=live.now,
    )
    event = status if entered else None
    earlier = warnings_in(before.status.get("evidence") or {})
    # A log of the past warns of nothing now.
    kinds = [] if is_replayed else warnings_in(written["evidence"])
    warnings = [kind for kind in kinds if kind not in earlier]
    return len(cohorts) if _save(registry, model, row, progress, event, warnings, reason) else 0


@dataclass
class _Progress:
    """What the cohorts of a step add."""

    #: Sums of all cohorts, with those of earlier steps.
    totals: CalibrationSums
    assessments: list[Assessment] = field(default_factory=list)
    rows: list[CohortRow] = field(default_factory=list)
    #: Labels that arrived too late.
    late: int = 0


def _assess(
    registry: Registry,
    before: MonitorRow,
    live: LiveCohorts,
    cohorts: list[LiveCohort],
    served: Any,
) -> _Progress:
    """Add cohorts to the monitor of a version."""
    assessor = live.assessor
    totals = CalibrationSums.empty(assessor.edges)
    if before.turn:
        totals = CalibrationSums.from_dict(before.totals)
    progress = _Progress(totals)
    for cohort in cohorts:
        # With the traffic of now: without it, PSI would leave the state and `since` would begin
        # again.
        progress.assessments.append(live.add(registry, cohort, served))
        progress.rows += assessor.cohort_rows(cohort.start, cohort.end, cohort.parts)
        for part in cohort.parts.values():
            progress.totals = progress.totals.merge(part.sums(assessor.edges))
        progress.late += cohort.late
    return progress


def _save(
    registry: Registry,
    model: Model,
    row: MonitorRow,
    progress: _Progress,
    event: Status | None,
    warnings: list[str],
    reason: str | None,
) -> bool:
    """Write a step, with what follows from it; False if another worker was faster."""
    try:
        with registry.transaction() as tx:
            tx.monitors.save(model, row, progress.rows, progress.assessments)
            if progress.late:
                tx.monitors.count_late(model, row.version, progress.late)
            for kind in warnings:
                written = row.status
                where = model, row.version, kind, _ACTOR
                tx.monitors.record(*where, written["reason"], written["evidence"])
            if event is not None:
                evidence = evidence_of(event)
                if row.status.get("alert") is not None:
                    evidence["alert"] = row.status["alert"]
                tx.monitors.record(model, row.version, event.state, _ACTOR, event.reason, evidence)
            if reason is not None:
                request_refit(tx, model, reason)
    except ConflictError as error:  # nothing is left to do
        log.info("%s", error, extra={"action": "monitor_overtaken", "model": model.name})
        return False
    if event is not None:
        _log_state(model, row.version, event)
    for kind in warnings:
        fields = {"action": "calibration_warned", "model": model.name, "warning": kind}
        text = "Model %s, version %d: %s: %s."
        reason = row.status["reason"]
        log.warning(text, model.name, row.version, kind, reason, extra=fields)
    return True


def _read_state(tx: Transaction, model: Model, champion: Alias) -> tuple[MonitorRow, LiveCohorts]:
    """Return the monitoring state of the champion at this time, and what goes on from it."""
    card = convert(tx.calibrators.get(model, champion.version).card, Card)
    now, monitoring = tx.clock(), model.monitoring
    options = fixed_options(monitoring)
    row = tx.monitors.find(model, champion.version, with_state=True)
    if row is None:
        number = tx.monitors.next_number(model)
        row = MonitorRow(champion.version, number, 0, options, 0.0, {}, {}, {}, 0, 0.0)
    elif any(row.options.get(name) != value for name, value in options.items()):
        # A new test, with the alpha that earlier tests have left. Past data is spent: it was read.
        number = tx.monitors.next_number(model)
        row = replace(row, number=number, options=options, state={})
    assessor = Assessor(model, champion.version, card, row.number, row.state)
    return row, LiveCohorts(model, champion.version, assessor, now)


def _models(registry: Registry) -> Iterator[Model]:
    """Yield all models, by name."""
    last = None
    while True:
        with registry.reading() as tx:
            page = tx.models.page(last, _PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1].name


def _log_state(model: Model, version: int, status: Status) -> None:
    fields = {
        "action": "calibration_state",
        "model": model.name,
        "version": version,
        "state": status.state,
        **{f"evidence_{name}": value for name, value in evidence_of(status).items()},
    }
    level = logging.WARNING if status.state in ("suspect", "stale") else logging.INFO
    log.log(
        level,
        "Model %s, version %d is %s: %s.",
        model.name,
        version,
        status.state,
        status.reason,
        extra=fields,
    )
