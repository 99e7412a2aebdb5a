"""Shadow comparison of a candidate with the champion, on the same predictions.

Both are applied to sampled logits once their labels have arrived, so requests pay nothing. The
score is the Brier score over classes, or of a multilabel model its mean over labels. Compared are
predictions made after the rows to which the candidate is fitted: those of the last maturity before
the fit too, as their labels mature. The candidate is promoted on evidence, or dropped.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.drift import ScoreTest
from recalib.drift.row_groups import arrange_units, unit_means
from recalib.drift.target import PROMISES
from recalib.errors import ConflictError
from recalib.registry import Challenger, ExpectedVersion, Model, Registry, Transaction
from training.logit_samples import (
    LabelledSample,
    brier_scores,
    read_calibrator,
    read_labelled_sample,
)

log = logging.getLogger(__name__)

_CHAMPION = "champion"
_ACTOR = "monitor"
#: Later than any timestamp.
_END_OF_TIME = 1e300


def compare(registry: Registry, model: Model) -> str | None:
    """Compare a model's candidate on new labels; return the outcome, or None without a candidate.

    A candidate with verdict `proven` is not compared further; it ends when the champion changes.
    Nothing is written, and the answer is None, if another worker was faster or the champion has
    changed meanwhile.
    """
    try:
        return _compare(registry, model)
    except ConflictError as error:
        log.info("%s", error, extra={"action": "shadow_overtaken", "model": model.name})
        return None


def _compare(registry: Registry, model: Model) -> str | None:
    with registry.reading() as tx:
        model = tx.models.get(model.name)
        candidate = tx.candidates.open(model)
        champion = tx.aliases.find(model, _CHAMPION)
        now = tx.clock()
        comparable = candidate is not None and _is_comparable(tx, model, candidate)
    if candidate is None or champion is None:
        return None
    step = replace(candidate, turn=candidate.turn + 1)
    if champion.version == candidate.version:
        return _end(registry, model, step, "promoted", "it was promoted by a user", now)
    if champion.version != candidate.champion and champion.version < candidate.version:
        return _restart(registry, model, step, champion.version)
    if champion.version != candidate.champion:
        reason = f"the champion of the comparison was replaced by version {champion.version}"
        return _end(registry, model, step, "dropped", reason, now)
    if candidate.verdict is not None:
        return None
    if not comparable:
        reason = "no sampled logits remain for the comparison: `capture` is 0"
        return _end(registry, model, step, "dropped", reason, now)
    end = now - model.monitoring.maturity_seconds
    rows = read_labelled_sample(registry, model, candidate.champion, candidate.through, end)
    test = ScoreTest(alpha=candidate.alpha)
    if candidate.state:
        test.restore(candidate.state)
    if len(rows):
        test.update(*_scores(registry, model, candidate, rows))
    elif rows.end <= candidate.through:
        return None
    step = replace(step, through=rows.end, state=test.state())
    if test.verdict is None:
        with registry.transaction() as tx:
            tx.candidates.save(model, step)
        return "compared"
    better = test.verdict == "better"
    verdict, reason = "dropped" if not better else _verdict(model), _reason(test, better)
    if not better and _promise_is_broken(registry, model, candidate.champion):
        verdict = "proven"
        reason += "; but it has new thresholds, and those of the champion broke their promise"
    return _end(registry, model, step, verdict, reason, now)


def _promise_is_broken(registry: Registry, model: Model, version: int) -> bool:
    """Whether sets or accepted rows make a version stale, which scores do not show."""
    with registry.reading() as tx:
        row = tx.monitors.find(model, version)
    status = {} if row is None else row.status
    return status.get("state") == "stale" and status.get("segment") in PROMISES


def _is_comparable(tx: Transaction, model: Model, candidate: Challenger) -> bool:
    """Whether more rows can arrive. Without them, an open candidate would block later ones."""
    return model.monitoring.capture > 0 or bool(
        tx.captures.between(model, candidate.through, _END_OF_TIME)
    )


def _verdict(model: Model) -> str:
    return "promoted" if model.monitoring.promote == "automatic" else "proven"


def _scores(
    registry: Registry, model: Model, candidate: Challenger, rows: LabelledSample
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    # A group counts once, with its mean: scores of any dependence within it are bounded.
    order, sizes = arrange_units(rows.groups)
    # The champion has the answers that were given, adapted to label shift or not.
    champion, challenger = (
        unit_means(
            brier_scores(read_calibrator(registry, model, version), rows, given=given)[order], sizes
        )
        for version, given in ((candidate.champion, True), (candidate.version, False))
    )
    return champion, challenger


def _reason(test: ScoreTest, better: bool) -> str:
    mean = f"its Brier score is lower by {test.mean_difference:.4f} on {test.labels:,} rows"
    if better:
        return f"{mean} (log E {test.log_evidence:.2f} of {test.threshold:.2f})"
    return f"it is no better: {mean}, too small for a change"


def _restart(registry: Registry, model: Model, step: Challenger, champion: int) -> str:
    """Compare a candidate with an earlier version that serves again: evidence against it is new."""
    reason = f"version {champion} serves again: the candidate is compared with it from now on"
    with registry.transaction() as tx:
        alpha = tx.candidates.next_alpha(model, champion)
        renewed = replace(step, champion=champion, alpha=alpha, state={}, verdict=None)
        tx.candidates.save(model, replace(renewed, ended_at=None))
        tx.monitors.record(model, step.version, "restarted", _ACTOR, reason)
    return "restarted"


def _end(
    registry: Registry, model: Model, step: Challenger, verdict: str, reason: str, now: float
) -> str:
    """Record the verdict, and promote if it says so, in one transaction."""
    with registry.transaction() as tx:
        tx.candidates.save(model, replace(step, verdict=verdict, ended_at=now))
        if verdict == "promoted":
            expected = ExpectedVersion(step.champion)
            current = tx.aliases.find(model, _CHAMPION)
            if current is None or current.version != step.version:
                tx.aliases.set(model, _CHAMPION, step.version, _ACTOR, reason, expected)
        tx.monitors.record(model, step.version, verdict, _ACTOR, reason, _evidence(step))
    fields = {"action": f"candidate_{verdict}", "model": model.name, "version": step.version}
    log.info(
        "Candidate %d of %s is %s: %s.", step.version, model.name, verdict, reason, extra=fields
    )
    return verdict


def _evidence(step: Challenger) -> dict[str, Any]:
    if not step.state:
        return {}
    test = ScoreTest(alpha=step.alpha)
    test.restore(step.state)
    return test.summary()
