"""The job that watches: reads what has matured, and says how each model's champion holds up.

Predictions are looked at in cohorts, once their labels have had time to come. What a cohort has
taught, that it has been looked at, and what follows from it are written in one transaction, by
whoever has seen the turn before: a worker that is killed, or two that do the same, count nothing
twice and leave nothing out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recalib.card import Card
from recalib.decoding import converted
from recalib.drift import (
    CalibrationSums,
    Cohort,
    Monitor,
    MonitorOptions,
    Status,
    default_bettors,
    spend_alpha,
)
from recalib.drift.reference_histogram import reference_edges
from recalib.errors import ConflictError, RecalibError, UnavailableError
from recalib.registry import (
    Alias,
    CohortRow,
    Model,
    MonitoringConfig,
    MonitorRow,
    Registry,
    Transaction,
)
from training.checkpoint_blobs import sweep_checkpoints
from training.refit_job import refit_is_due, request_refit
from training.shadow_comparison import compare
from training.worker import JobContext

__all__ = ["MONITOR", "REST", "run_monitor", "tidy", "watch"]

log = logging.getLogger(__name__)

#: The kind of job that this module does.
MONITOR = "monitor"
#: What is of no declared segment; no segment can be called so.
REST = "(rest)"
_CHAMPION = "champion"
#: Who acts, in the audit trail.
_ACTOR = "monitor"
#: Cohorts written at once, so that nobody waits for long, and labels behind which no further
#: cohort is read, so that what is in memory does not grow with how long nobody has looked.
_MOST_COHORTS, _MOST_LABELS = 100, 200_000
#: Where nothing has changed, numbers are written down so often, in seconds.
_ANEW_SECONDS = 300.0
_PAGE = 500
_HOUR, _DAY = 3600, 86_400.0
#: Buckets of traffic are put together into hours once they are so old and have been looked at, and
#: forgotten later, with the cohorts.
_COARSE_AFTER, _FORGET_AFTER = 2 * _DAY, 90 * _DAY


def run_monitor(context: JobContext) -> None:
    """Watch every model that has a champion; one that cannot be watched keeps back no other.

    And tidy up: behind jobs that have ended, and once an hour what has been counted and kept.
    """
    sweep_checkpoints(context.registry)
    with context.registry.reading() as tx:
        hour, last = tx.labels.clock() // _HOUR, tx.jobs.last_success(MONITOR)
    tidies = last is None or last // _HOUR < hour
    watched = cohorts = failed = 0
    for model in _models(context.registry):
        context.check_cancelled()
        try:
            taken = watch(context.registry, model)
            compare(context.registry, model)
            if tidies:
                tidy(context.registry, model)
        except UnavailableError:
            raise
        except RecalibError as error:
            failed += 1
            fields = {"action": "monitor_failed", "model": model.name}
            log.error("Model %s cannot be watched: %s", model.name, error, extra=fields)
            continue
        watched += taken is not None
        cohorts += taken or 0
    with context.finishing() as tx:
        result = {"models": watched, "cohorts": cohorts, "failed": failed}
        tx.jobs.succeed(context.lease, result)


def watch(registry: Registry, model: Model) -> int | None:
    """Take all cohorts of a model's champion that have matured, and say how it is.

    Return how many cohorts, None for a model without a champion.
    """
    taken = 0
    while True:
        step = _step(registry, model)
        if step is None:
            return None
        taken += step
        if step == 0:
            return taken


def tidy(registry: Registry, model: Model) -> None:
    """Make old counts of traffic coarser, forget very old ones, and logits that were kept.

    The champion's once they have been looked at; nobody may ever look at those of other versions.
    """
    with registry.reading() as tx:
        now = tx.labels.clock()
        champion = tx.aliases.find(model, _CHAMPION)
        through = {} if champion is None else tx.monitors.through(model, [champion.version])
    matured = now - model.monitoring.maturity_seconds
    for version in range(1, model.latest_version + 1):
        with registry.transaction() as tx:  # a short one each
            read = through.get(version, matured)
            tx.traffic.delete(model, version, min(now - _FORGET_AFTER, read))
            tx.traffic.compact(model, version, min(now - _COARSE_AFTER, read), _HOUR)
    with registry.transaction() as tx:
        tx.monitors.delete_cohorts(model, now - _FORGET_AFTER)
        forgotten = tx.captures.delete(model, now - model.monitoring.capture_seconds)
    for digest in forgotten:
        registry.blobs.remove(digest)


def _step(registry: Registry, model: Model) -> int | None:
    with registry.reading() as tx:
        model = tx.models.get(model.name)
        champion = tx.aliases.find(model, _CHAMPION)
        if champion is None:
            return None
        look = _look(tx, model, champion)
        cohorts = list(look.cohorts(tx))
        served = look.served(tx)
    before = look.row
    monitor = _monitor(look, model.monitoring)
    totals = (
        CalibrationSums.from_dict(before.totals)
        if before.turn
        else CalibrationSums.empty(look.edges)
    )
    late = 0
    for cohort in cohorts:
        monitor.add(cohort.start, cohort.end, cohort.parts)
        for part in cohort.parts.values():
            totals.merge(part.sums(look.edges))
        late += cohort.late
    status = monitor.assess(look.now, served)
    entered = status.state != before.status.get("state", "unverified")
    stale_numbers = look.now - before.assessed_at > _ANEW_SECONDS
    with registry.reading() as tx:
        due = refit_is_due(tx, model, status.state, look.now)
    if not (cohorts or entered or stale_numbers or due or before.turn == 0):
        return 0
    row = replace(
        before,
        turn=before.turn + 1,
        through=cohorts[-1].end if cohorts else before.through,
        state=monitor.state(),
        status=_plain(status.to_dict()),
        totals=totals.to_dict(),
        assessed_at=look.now,
    )
    rows = [row for cohort in cohorts for row in cohort.rows(look.edges, model.monitoring)]
    try:
        with registry.transaction() as tx:
            tx.monitors.save(model, row, rows)
            if late:
                tx.monitors.count_late(model, row.version, late)
            if entered:
                tx.monitors.record(
                    model, row.version, status.state, _ACTOR, status.reason, _evidence(status)
                )
            if due is not None:
                request_refit(tx, model, due)
    except ConflictError as error:  # another has done the same: nothing is left to do
        log.info("%s", error, extra={"action": "monitor_overtaken", "model": model.name})
        return 0
    if entered:
        _tell(model, row.version, status)
    return len(cohorts)


@dataclass(frozen=True)
class _Cohort:
    """What was predicted in some stretch of time, by the names of segments."""

    start: float
    end: float
    parts: dict[str, Cohort]
    #: Labels that came too late to count.
    late: int

    def rows(self, edges: Any, monitoring: MonitoringConfig) -> Iterator[CohortRow]:
        for number, name in enumerate(_names(monitoring)):
            sums = self.parts[name].sums(edges)
            if sums.traffic.any() or sums.labelled.any():
                yield CohortRow(self.start, self.end, number, sums.to_dict())


@dataclass(frozen=True)
class _Look:
    """A version at one moment."""

    model: Model
    version: int
    card: Card
    row: MonitorRow
    now: float

    @property
    def edges(self) -> Any:
        """Inner edges of bins."""
        return reference_edges(self.card)

    def cohorts(self, tx: Transaction) -> Iterator[_Cohort]:
        """Yield cohorts that have matured since the last look; those without anything are none."""
        monitoring, through = self.model.monitoring, self.row.through
        length, matured = monitoring.cohort_seconds, self.now - monitoring.maturity_seconds
        read = cohorts = 0
        while read < _MOST_LABELS and cohorts < _MOST_COHORTS:
            firsts = (
                tx.labels.first(self.model, self.version, through),
                tx.traffic.first(self.model, self.version, through),
            )
            begun = [one for one in firsts if one is not None]
            if not begun:
                return
            # On a grid that all versions have in common; what comes after a change of its width
            # may begin in the middle of a cohort.
            grid = math.floor(min(begun) / length) * length
            start, end = max(grid, through), grid + length
            if end > matured:
                return
            cohort = self._cohort(tx, start, end)
            yield cohort
            cohorts += 1
            read += sum(len(np.asarray(part.correct)) for part in cohort.parts.values())
            through = end

    def served(self, tx: Transaction) -> Any:
        """Return counts (B,) of what was served lately, or None where nothing was."""
        monitoring = self.model.monitoring
        since = self.now - max(monitoring.cohort_seconds, monitoring.maturity_seconds)
        counts = np.zeros(len(self.edges) + 1, np.int64)
        for one in tx.traffic.between(self.model, self.version, since, self.now + 1e6):
            counts[one.bin] += one.predictions
        return counts if counts.any() else None

    def _cohort(self, tx: Transaction, start: float, end: float) -> _Cohort:
        monitoring = self.model.monitoring
        labels = tx.labels.columns(self.model, self.version, start, end)
        delays = labels.labelled_at - labels.predicted_at
        timely = delays <= monitoring.maturity_seconds
        names = _names(monitoring)
        traffic = {name: np.zeros(len(self.edges) + 1, np.int64) for name in names}
        for one in tx.traffic.between(self.model, self.version, start, end):
            traffic[names[one.segment]][one.bin] += one.predictions
        parts = {}
        for number, name in enumerate(names):
            own = timely & (labels.segment == number)
            parts[name] = Cohort(
                traffic[name],
                labels.confidence[own],
                labels.correct[own],
                delays[own],
                labels.predicted_at[own],
            )
        return _Cohort(start, end, parts, int(np.count_nonzero(~timely)))


def _names(monitoring: MonitoringConfig) -> list[str]:
    """Return the names of segments by their numbers; 0 is the rest, or all where there are none."""
    return [REST if monitoring.segments else "", *monitoring.segments]


def _look(tx: Transaction, model: Model, champion: Alias) -> _Look:
    card = converted(tx.calibrators.get(model, champion.version).card, Card)
    now, monitoring = tx.labels.clock(), model.monitoring
    options = {
        "alpha": monitoring.alpha,
        "tolerance": monitoring.tolerance,
        "segments": len(monitoring.segments),
        "window_labels": max(monitoring.window_labels, monitoring.least_labels),
        # Another version of Recalib may bet otherwise, and cannot go on from where this one was.
        "bettors": len(default_bettors()),
    }
    row = tx.monitors.find(model, champion.version)
    if row is None:
        number = tx.monitors.next_number(model)
        row = MonitorRow(champion.version, number, 0, options, 0.0, {}, {}, {}, 0, 0.0)
    elif row.options != options:
        # Another test, with what those before it have left of alpha. What is known of the past is
        # spent: it has been looked at.
        number = tx.monitors.next_number(model)
        row = replace(row, number=number, options=options, state={})
    return _Look(model, champion.version, card, row, now)


def _monitor(look: _Look, monitoring: MonitoringConfig) -> Monitor:
    bins = look.card.confidences
    options = MonitorOptions(
        alpha=spend_alpha(monitoring.alpha, look.row.number),
        tolerance=monitoring.tolerance,
        objective=monitoring.objective,
        least_labels=monitoring.least_labels,
        window_labels=max(monitoring.window_labels, monitoring.least_labels),
        # The rest, too.
        segments=len(monitoring.segments) + 1 if monitoring.segments else 0,
    )
    monitor = Monitor(look.edges, None if bins is None else bins.counts, options)
    if look.row.state:
        monitor.restore(look.row.state)
    return monitor


def _models(registry: Registry) -> Iterator[Model]:
    last = None
    while True:
        with registry.reading() as tx:
            page = tx.models.page(last, _PAGE)
        yield from page
        if len(page) < _PAGE:
            return
        last = page[-1].name


def _evidence(status: Status) -> dict[str, Any]:
    owner = status.evidence if status.segment is None else status.segments[status.segment].evidence
    found: dict[str, Any] = _plain(owner.to_dict())
    return {**found, "segment": status.segment, "onset": status.onset}


def _plain(value: Any) -> Any:
    """Return JSON without what JSON has not: an infinite number is None."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _tell(model: Model, version: int, status: Status) -> None:
    fields = {
        "action": "calibration_state",
        "model": model.name,
        "version": version,
        "state": status.state,
        **{f"evidence_{name}": value for name, value in _evidence(status).items()},
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
