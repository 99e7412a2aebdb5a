"""The refit job: fit a new calibrator on sampled logits and their labels.

It publishes a candidate, which does not serve. `training.shadow_comparison` compares it with the
champion on later predictions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from recalib.calibrator import Calibrator
from recalib.core.card import Card, DataSummary
from recalib.core.decoding import convert
from recalib.core.options import options_of
from recalib.errors import ConflictError, RecalibError, UnavailableError
from recalib.fitting.fit import fit
from recalib.fitting.request import candidate_of, promise_options
from recalib.fitting.row_digests import encode_digests, row_digests
from recalib.registry import Challenger, Model, MonitorRow, Transaction
from recalib.registry.alerts import drift_onset, failed_refit_text
from recalib.registry.job_kinds import REFIT
from training.logit_samples import LabelledSample, read_labelled_sample
from training.publication import fit_result
from training.refit_map import choose_label_map, choose_map, refit_policy, refused_maps
from training.worker import JobContext

log = logging.getLogger(__name__)

_CHAMPION = "champion"


def request_refit(tx: Transaction, model: Model, reason: str) -> None:
    """Enqueue a refit, unless one is queued or running."""
    payload = {"model": model.name, "reason": reason}
    tx.jobs.enqueue(REFIT, payload, model=model, unique=f"refit {model.id}")


def refit_is_due(tx: Transaction, model: Model, state: str, now: float) -> str | None:
    """Return the reason for an automatic refit of a model, or None if none is due.

    After a refit that failed or whose candidate was dropped, the next one waits for the maturity of
    labels: before, most of its data would be the same. A refit that had too few rows is repeated
    after a tenth of it, because rows mature all the time.
    """
    monitoring = model.monitoring
    # A refit would replace a proven candidate that waits for a user's decision.
    if tx.candidates.open(model) is not None:
        return None
    wait = max(monitoring.maturity_seconds, monitoring.cohort_seconds)
    soon = max(monitoring.maturity_seconds / 10, monitoring.cohort_seconds)
    pauses = {"refitted": wait, "refit_impossible": soon if monitoring.capture > 0 else wait}
    last = [
        (event.at.timestamp(), pauses[event.kind])
        for event in tx.monitors.events(model, 100)
        if event.kind in pauses
    ]
    candidate = tx.candidates.latest(model)
    if candidate is not None and candidate.verdict == "dropped":
        last.append((candidate.ended_at or 0.0, wait))
    job = tx.jobs.latest(model, REFIT)
    if job is not None and job.finished_at is not None:
        # One that succeeded has an event.
        last.append((job.finished_at, 0.0 if job.state == "succeeded" else wait))
    is_rested = all(now - at >= pause for at, pause in last)
    if state == "stale" and monitoring.refit == "on_stale" and is_rested:
        return "the calibrator is stale"
    interval = monitoring.refit_every_seconds
    start = candidate.began_at if candidate is not None else model.created_at
    is_due = interval is not None and now - max([start, *(at for at, _ in last)]) >= interval
    return f"every {interval:g} seconds" if is_due else None


def run_refit(context: JobContext, pause: Callable[[], object] = lambda: None) -> None:
    """Fit a candidate and publish it with the end of the job, or record why it is impossible.

    Parameters
    ----------
    pause: called between two iterations, so that a worker can run what callers wait for during an
        automatic refit of minutes.
    """
    with context.registry.reading() as tx:
        model = tx.models.get(context.payload["model"])
        champion = tx.aliases.find(model, _CHAMPION)
        if champion is None:
            raise ConflictError(f"model {model.name!r} has no champion to refit")
        row = tx.monitors.find(model, champion.version)
        card = convert(tx.calibrators.get(model, champion.version).card, Card)
        undecided = tx.candidates.undecided(model)
        is_stale = row is not None and row.status["state"] == "stale"
        refused = refused_maps(tx, model, champion.version, card) if is_stale else None
        parameters = tx.calibrators.parameters(model, champion.version)
        now = tx.clock()
    if undecided is not None:
        reason = f"candidate {undecided.version} is being compared with the champion"
        _finish_without_candidate(context, model, champion.version, reason)
        return
    if card.segments is not None:
        reason = f"version {champion.version} has segments, which a refit does not fit: fit them "
        reason += "to labelled rows with `recalib fit --segments`, and publish the file"
        _finish_without_candidate(context, model, champion.version, reason)
        return
    context.progress(0.0, "reading sampled logits")
    start, onset = _sample_start(row, model, now)
    end = now - model.monitoring.maturity_seconds
    rows = read_labelled_sample(context.registry, model, champion.version, start, end, newest=True)
    if len(rows) < model.monitoring.least_labels:
        _finish_without_candidate(context, model, champion.version, _too_few(rows, model, onset))
        return
    try:
        previous = Calibrator.from_bytes(parameters)
        calibrator = _fit_candidate(context, model, previous, rows, refused, pause)
    except UnavailableError:
        raise
    except RecalibError as error:
        reason = failed_refit_text(error, model, len(rows), card.rejection)
        _finish_without_candidate(context, model, champion.version, reason)
        return
    digests = encode_digests(row_digests(rows.logits))
    _publish(context, model, champion.version, calibrator, digests, now, end)


def _sample_start(row: MonitorRow | None, model: Model, now: float) -> tuple[float, float | None]:
    """Return the start of the data for a refit, and the onset of a drift, if any.

    Without a drift in the labels the start is that of the sampled logits. The onset is not used
    then: it is the time from which the leading bettor wins, which is recent if no bettor does.
    """
    oldest = now - model.monitoring.capture_seconds
    onset = None if row is None else drift_onset(row.status)
    return (oldest, None) if onset is None else (max(oldest, onset), onset)


def _too_few(rows: LabelledSample, model: Model, onset: float | None) -> str:
    monitoring = model.monitoring
    if monitoring.capture == 0:
        return (
            "no logits are kept: declare a `capture` rate, and labels of predictions made from "
            "then on can be fitted on"
        )
    needs = "more labels"
    if monitoring.capture < 1:
        needs = f"a `capture` rate above {monitoring.capture:g}, or with {needs}"
    since = "" if onset is None else f" since the drift began ({_timestamp(onset)})"
    return (
        f"{len(rows)} predictions{since} have both kept logits ({rows.sampled}) and a "
        f"label, and {monitoring.least_labels} are needed; more arrive with time, or with {needs}"
    )


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _fit_candidate(
    context: JobContext,
    model: Model,
    champion: Calibrator,
    rows: LabelledSample,
    refused: dict[str, str] | None,
    pause: Callable[[], object],
) -> Calibrator:
    """Fit the champion's map, or one that `choose_map` selects if `refused` is not None.

    A champion with thresholds of prediction sets or of rejection gets new ones by its options.

    Of a multilabel model, `choose_label_map` selects it, and labels with too few rows keep their
    curves in the champion.
    """

    def report(stage: str, iteration: int, value: float) -> None:
        context.progress(0.3, f"fitting {stage}: iteration {iteration}, objective {value:.5f}")
        pause()
        context.check_cancelled()

    card, choice = champion.card, None
    candidate = candidate_of(card)
    if model.is_multilabel:
        candidate = choose_label_map(card, refused or {})
    elif refused is not None:
        candidate, choice = choose_map(card, refused, rows, refit_policy(model, card), report)
    calibrator = fit(
        rows.logits,
        rows.labels,
        candidate.map.name,
        candidate.objective.name,
        task=model.task,
        start=champion if model.is_multilabel else None,
        class_labels=model.labels,
        measure=True,
        **promise_options(card),
        data=DataSummary(rows=len(rows), name="kept logits"),
        progress=report,
        **(options_of(candidate.objective) | options_of(candidate.map)),
    )
    named = msgspec.structs.replace(calibrator.card, model=model.name, choice=choice)
    return Calibrator(calibrator.parameters, named)


def _publish(
    context: JobContext,
    model: Model,
    champion: int,
    calibrator: Calibrator,
    digests: bytes,
    now: float,
    through: float,
) -> None:
    card, rows = calibrator.card, calibrator.card.data.rows
    reason = f"{context.payload['reason']}: fitted {card.map} on {rows} kept predictions"
    if card.choice is not None:
        reason += f"; {card.choice.reason}"
    with context.finishing() as tx:
        version = tx.calibrators.publish(
            context.lease,
            model,
            None,
            card.to_dict(),
            calibrator.to_bytes(),
            None,
            reason,
            row_digests=digests,
        )
        alpha = tx.candidates.next_alpha(model, champion)
        candidate = Challenger(version, champion, 0, now, through, alpha, {}, None, None)
        actor = f"job:{context.lease.job.id}"
        _drop_proven_candidate(tx, model, actor, version)
        tx.candidates.add(model, candidate)
        tx.monitors.record(model, version, "refitted", actor, reason, {"rows": rows})
        result = {"model": model.name, "version": version, "candidate": True}
        result |= {"reason": reason, **fit_result(card, model, "the candidate")}
        tx.jobs.succeed(context.lease, result)
    fields = {"action": "refitted", "model": model.name, "version": version}
    log.info("Model %s has candidate %d: %s.", model.name, version, reason, extra=fields)


def _drop_proven_candidate(tx: Transaction, model: Model, actor: str, version: int) -> None:
    """Drop a proven candidate that waits for a decision when a user requests another refit."""
    proven = tx.candidates.open(model)
    if proven and proven.verdict == "proven" and tx.candidates.drop(model, proven.version):
        reason = f"candidate {version} was requested, and replaces it"
        tx.monitors.record(model, proven.version, "dropped", actor, reason)


def _finish_without_candidate(context: JobContext, model: Model, version: int, reason: str) -> None:
    with context.finishing() as tx:
        actor = f"job:{context.lease.job.id}"
        tx.monitors.record(model, version, "refit_impossible", actor, reason)
        result = {"model": model.name, "candidate": False, "reason": reason}
        tx.jobs.succeed(context.lease, result)
    fields = {"action": "refit_impossible", "model": model.name}
    log.warning("Model %s is not refitted: %s.", model.name, reason, extra=fields)
