"""A stale calibrator is refitted, compared in shadow, and promoted or dropped."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.card import Card, PredictionSets
from recalib.core.decoding import convert
from recalib.drift import ScoreTest
from recalib.errors import ConflictError, CorruptError
from recalib.fitting.fit import fit
from recalib.metrics.evaluate import evaluate
from recalib.registry import (
    Challenger,
    Model,
    MonitoringSettings,
    MonitorRow,
    Registry,
)
from recalib.registry.job_kinds import FIT, MONITOR, REFIT
from recalib.sets.conformal import options_of_sets
from tests.fitting.conftest import draw
from tests.registry.scenes import a_lease
from tests.training.watched import CAPTURING, WATCHING, a_champion, serve
from training.logit_samples import read_labelled_sample
from training.main import HANDLERS
from training.monitoring_job import watch
from training.pause import Pause
from training.refit_job import _sample_start, refit_is_due, request_refit, run_refit
from training.shadow_comparison import compare
from training.worker import Worker


def work(registry: Registry, *kinds: str) -> None:
    """Run the monitoring job and the jobs that it adds."""
    with registry.transaction() as tx:
        tx.jobs.enqueue(MONITOR, {}, unique=MONITOR)
    worker = Worker(registry, {kind: HANDLERS[kind] for kind in kinds or HANDLERS}, name="test")
    while worker.work_once(threading.Event()):
        pass


def story(registry: Registry, model: Model) -> list[tuple[int, str]]:
    with registry.reading() as tx:
        return [(event.version, event.kind) for event in reversed(tx.monitors.events(model, 100))]


def champion(registry: Registry, model: Model) -> int:
    with registry.reading() as tx:
        return tx.aliases.get(model, "champion").version


def candidate(registry: Registry, model: Model) -> Challenger:
    with registry.reading() as tx:
        latest = tx.candidates.latest(model)
    assert latest is not None
    return latest


@pytest.fixture
def drifted(registry: Registry) -> Model:
    """A champion of temperature 3 that meets rows of temperature 9, and is stale."""
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=4_000, temperature=3.0)
    serve(registry, model, ago=2_400, temperature=9.0, seed=2)
    return model


def test_stale_champion_is_refitted_and_promoted_on_evidence(
    registry: Registry, drifted: Model
) -> None:
    """The audit trail has all steps; the alias history has actor and reason."""
    work(registry)
    assert story(registry, drifted)[-2:] == [(1, "stale"), (2, "refitted")]
    assert champion(registry, drifted) == 1
    started = candidate(registry, drifted)
    assert (started.version, started.champion, started.verdict) == (2, 1, None)
    with registry.reading() as tx:
        card: Any = tx.calibrators.get(drifted, 2).card
    assert 1_000 < card["data"]["rows"] <= 1_700
    check_that_rows_are_of_the_drift(registry, drifted)
    work(registry)
    assert candidate(registry, drifted).verdict is None  # nothing new has matured
    # Simulate predictions after the fit that have matured.
    with registry.transaction() as tx:
        step = replace(started, turn=candidate(registry, drifted).turn + 1)
        tx.candidates.save(drifted, replace(step, through=started.began_at - 1_200))
    serve(registry, drifted, ago=1_100, temperature=9.0, seed=3)
    work(registry)
    finished = candidate(registry, drifted)
    assert finished.verdict == "promoted"
    assert finished.state["labels"] == 1_500
    assert champion(registry, drifted) == 2
    assert story(registry, drifted)[-1] == (2, "promoted")
    # The test and the onset do not depend on how rows are split into parts, so the fitted
    # calibrator is always the same.
    error, error_floor = errors(registry, drifted, 2)
    assert error < error_floor
    champion_error, champion_floor = errors(registry, drifted, 1)
    assert champion_error > 3 * champion_floor
    with registry.reading() as tx:
        (change, _) = tx.aliases.history(drifted, "champion")
        events = tx.monitors.events(drifted, 1)
    assert (change.actor, change.from_version, change.to_version) == ("monitor", 1, 2)
    assert "Brier" in change.reason
    assert events[0].evidence["log_evidence"] >= events[0].evidence["threshold"]


@pytest.mark.sqlite_only
@pytest.mark.parametrize("folds", [None, 4])
def test_refit_keeps_the_prediction_sets_of_the_champion(
    registry: Registry, folds: int | None
) -> None:
    """Their options; the thresholds are new, of rows that the new map has not seen or of folds."""
    sets = PredictionSets(
        method="raps", coverage=0.7, by="class", thresholds=(0.9,), rows=99, low=0.6, high=0.8,
        finite_sample=folds is None, folds=folds, penalty=0.3, k_reg=2,
    )  # fmt: skip
    model = a_champion(registry, CAPTURING, sets=sets)
    serve(registry, model, ago=4_000, temperature=3.0)
    with registry.transaction() as tx:
        request_refit(tx, model, "on request")
    work(registry, REFIT)
    with registry.reading() as tx:
        refitted = convert(tx.calibrators.get(model, 2).card, Card).sets
    assert refitted is not None
    assert options_of_sets(refitted) == options_of_sets(sets)
    assert (refitted.finite_sample, refitted.folds) == (folds is None, folds)
    assert len(refitted.thresholds) == 4


def test_requested_jobs_do_not_wait_for_a_refit(registry: Registry, drifted: Model) -> None:
    """A worker runs them between two iterations, and the refit goes on."""
    states: list[str] = []

    def run_one() -> None:
        fit_worker.work_once(threading.Event())
        with registry.reading() as tx:
            job = tx.jobs.latest(drifted, REFIT)
        states.append("" if job is None else job.state)

    fit_worker = Worker(registry, {FIT: lambda context: None}, name="between")
    with registry.transaction() as tx:
        request_refit(tx, drifted, "stale")
        requested = tx.jobs.enqueue(FIT, {}, owner="beta").id
    worker = Worker(registry, {REFIT: partial(run_refit, pause=run_one)}, name="w")
    assert worker.work_once(threading.Event())
    with registry.reading() as tx:
        assert tx.jobs.get(requested).state == "succeeded"
    assert set(states) == {"running"}
    assert story(registry, drifted)[-1] == (2, "refitted")


def test_long_job_gets_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("training.pause.time.monotonic", lambda: clock[0])
    starts: list[float] = []

    def act() -> None:
        starts.append(clock[0])
        clock[0] += 30.0

    pause = Pause(act, every_seconds=0.5, share=1 / 3)
    for _ in range(100):
        pause()
        clock[0] += 1.0
    assert starts[:3] == [0.0, 40.0, 80.0]


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_candidates_against_a_champion_share_alpha(registry: Registry, drifted: Model) -> None:
    """α/(j (j + 1)) for the j-th, so repeated refits do not add up to more than α."""
    work(registry)
    assert candidate(registry, drifted).alpha == pytest.approx(0.05 / 2)
    for version, share in ((3, 6), (4, 12)):
        with registry.transaction() as tx:
            tx.candidates.drop(drifted, version - 1)
            request_refit(tx, drifted, "by hand")
        work(registry, REFIT)
        latest = candidate(registry, drifted)
        assert (latest.version, latest.alpha) == (version, pytest.approx(0.05 / share))


def check_that_rows_are_of_the_drift(registry: Registry, model: Model) -> None:
    """Candidate 2 beats a fit to all rows, and is close to the true temperature."""
    with registry.reading() as tx:
        fitted = Calibrator.from_bytes(tx.calibrators.parameters(model, 2))
        row = tx.monitors.find(model, 1)
        card: Any = tx.calibrators.get(model, 2).card
        now = tx.clock()
    assert row is not None
    assert abs(row.status["onset"] - (now - 2_400)) < 120
    sample = read_labelled_sample(registry, model, 1, 0, now)
    assert len(sample) == 3_000
    assert card["data"]["rows"] == len(
        read_labelled_sample(registry, model, 1, row.status["onset"], now)
    )
    unseen, truth = draw(4_000, 4, 9.0, seed=77)

    def error(temperature: float) -> float:
        scaled = unseen / temperature
        logs = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        return float(-logs[np.arange(len(truth)), truth].mean())

    fitted_to_all = _temperature(fit(sample.logits, sample.labels, map="temperature"))
    best = error(9.0)
    assert error(_temperature(fitted)) < error(fitted_to_all) - 0.01
    assert error(_temperature(fitted)) - best < 0.2 * (error(fitted_to_all) - best)


def errors(registry: Registry, model: Model, version: int) -> tuple[float, float]:
    """Return ECE on 1,500 unseen rows of the drift, and its 95% quantile for a perfect model."""
    with registry.reading() as tx:
        served = Calibrator.from_bytes(tx.calibrators.parameters(model, version))
    logits, truth = draw(1_500, 4, 9.0, seed=10_000)
    answered = served.predict(logits)
    ends = np.cumsum(answered, axis=1)
    draws = np.random.default_rng(0)

    def ece(labels: NDArray[Any]) -> float:
        return float(evaluate(labels, probabilities=answered, metrics=["ece"])["ece"].value)

    perfect = [
        ece((draws.random((len(answered), 1)) > ends).sum(axis=1).clip(max=3)) for _ in range(200)
    ]
    return ece(truth), float(np.quantile(perfect, 0.95))


def _temperature(calibrator: Calibrator) -> float:
    return float(calibrator.parameters["temperature"])


@pytest.mark.sqlite_only
def test_without_drift_the_fit_uses_all_saved_rows(registry: Registry) -> None:
    """Without drift the onset is recent.

    Suspicion by confidences or the window alone has no onset from labels.
    """
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=4_000, temperature=3.0, rows=900)
    watch(registry, model)
    with registry.transaction() as tx:
        row = tx.monitors.find(model, 1)
        assert row is not None
        assert row.status["onset"] > row.assessed_at - 3_900
        for state in ("fresh", "unverified", "suspect"):
            row = replace(row, turn=row.turn + 1, status={**row.status, "state": state})
            assert _sample_start(row, model, 1e10) == (
                1e10 - model.monitoring.capture_seconds,
                None,
            )
        tx.monitors.save(model, replace(row, turn=2))
        request_refit(tx, model, "asked")
    work(registry, REFIT)
    with registry.reading() as tx:
        card: Any = tx.calibrators.get(model, 2).card
    assert card["data"]["rows"] == 900


@pytest.mark.sqlite_only
def test_sample_start_follows_the_onset_of_a_segment(registry: Registry) -> None:
    calm = {"suspicion": 0.1, "suspicion_threshold": 2.3, "rejected_at": None}
    wild = {**calm, "suspicion": 3.0}
    status = {
        "state": "suspect", "segment": "eu", "onset": 9e9, "evidence": calm,
        "segments": {"eu": {"evidence": wild}},
    }  # fmt: skip
    row = MonitorRow(1, 1, 1, {}, 0.0, {}, status, {}, 0, 0.0)
    model = a_champion(registry)
    assert _sample_start(row, model, 9e9 + 60) == (9e9, 9e9)
    assert _sample_start(row, model, 1e10) == (1e10 - model.monitoring.capture_seconds, 9e9)
    row_without_segment = replace(row, status={**status, "segment": None})
    assert _sample_start(row_without_segment, model, 9e9 + 60)[1] is None


def last_reason(registry: Registry, model: Model, before: int = 0) -> str:
    with registry.reading() as tx:
        return tx.monitors.events(model, 10)[before].reason


def shadowed(
    registry: Registry,
    model: Model,
    monitoring: MonitoringSettings,
    temperature: float,
    *,
    begins: bool = True,
) -> int:
    """Publish a candidate of another temperature, and let 1,500 predictions be compared."""
    candidate_calibrator = fit(*draw(2_000, 4, temperature, seed=9), map="temperature")
    lease = a_lease(registry)
    with registry.transaction() as tx:
        tx.models.set_monitoring(model.name, monitoring)
        now = tx.clock()
        version = tx.calibrators.publish(
            lease,
            model,
            None,
            candidate_calibrator.card.to_dict(),
            candidate_calibrator.to_bytes(),
            None,
            "",
        )
        tx.jobs.succeed(lease, {})
        if begins:
            started = Challenger(version, 1, 0, now, now - 3_000, 0.05, {}, None, None)
            tx.candidates.add(model, started)
    if begins:
        serve(registry, model, ago=2_000, temperature=3.0, seed=5)
    return version


@pytest.mark.sqlite_only
def test_a_candidate_that_is_no_better_is_dropped(registry: Registry) -> None:
    """The candidate is dropped on evidence, and the champion stays."""
    model = a_champion(registry, CAPTURING)
    shadowed(registry, model, CAPTURING, 30.0)
    assert compare(registry, model) == "dropped"
    assert champion(registry, model) == 1
    assert story(registry, model) == [(2, "dropped")]
    assert compare(registry, model) is None


@pytest.mark.sqlite_only
@pytest.mark.slow
def test_manual_promotion_waits_for_a_user(registry: Registry, drifted: Model) -> None:
    """With `promote: manual` a candidate becomes proven, and a user promotes it."""
    manual = replace(CAPTURING, promote="manual")
    with registry.transaction() as tx:
        tx.models.set_monitoring("resnet", manual)
    work(registry)
    started = candidate(registry, drifted)
    with registry.transaction() as tx:
        tx.candidates.save(
            drifted, replace(started, turn=started.turn + 1, through=started.began_at - 1_200)
        )
    serve(registry, drifted, ago=1_100, temperature=9.0, seed=3)
    work(registry, MONITOR)
    assert candidate(registry, drifted).verdict == "proven"
    assert champion(registry, drifted) == 1
    assert story(registry, drifted)[-1] == (2, "proven")
    # A proven candidate stays until a user requests another refit.
    with registry.transaction() as tx:
        assert refit_is_due(tx, drifted, "stale", tx.clock() + 1e6) is None
    assert compare(registry, drifted) is None
    with registry.transaction() as tx:
        request_refit(tx, drifted, "asked")
    work(registry, REFIT)
    assert story(registry, drifted)[-2:] == [(2, "dropped"), (3, "refitted")]
    assert "candidate 3 was requested" in last_reason(registry, drifted, 1)


@pytest.mark.parametrize("verdict", [None, "proven"])
def test_candidate_stays_when_an_earlier_version_serves_again(
    registry: Registry, verdict: str | None
) -> None:
    """It is compared with that version, with evidence and alpha of its own, and can be promoted."""
    model = a_champion(registry, CAPTURING)
    for _ in range(2):
        version = shadowed(registry, model, model.monitoring, 3.0, begins=False)
    assert version == 3
    with registry.transaction() as tx:
        start = tx.clock() - 1_500
        old = ScoreTest(alpha=0.025)
        old.update([1.0] * 50, [0.5] * 50)
        state = old.state()
        tx.aliases.set(model, "champion", 2, "anna", "a try")
        tx.candidates.add(model, Challenger(3, 2, 7, start, start, 0.025, state, verdict, None))
        tx.aliases.set(model, "champion", 1, "anna", "rolled back")
    assert compare(registry, model) == "restarted"
    renewed = candidate(registry, model)
    assert (renewed.version, renewed.champion, renewed.verdict) == (3, 1, None)
    assert (renewed.state, renewed.through) == ({}, start)
    assert renewed.alpha == pytest.approx(0.05 / 6)
    assert story(registry, model)[-1] == (3, "restarted")
    serve(registry, model, ago=1_400, temperature=9.0, seed=3)
    compare(registry, model)
    assert candidate(registry, model).state["labels"] == 1_500


@pytest.mark.parametrize(
    ("served", "verdict", "word"),
    [(2, "promoted", "it was promoted by a user"), (3, "dropped", "was replaced by version 3")],
)
def test_proven_candidate_ends_when_the_champion_changes(
    registry: Registry, served: int, verdict: str, word: str
) -> None:
    """Its verdict is promoted if it serves now, otherwise dropped."""
    model = a_champion(registry, replace(CAPTURING, promote="manual"))
    for _ in range(2):
        version = shadowed(registry, model, model.monitoring, 3.0, begins=False)
    assert version == 3
    with registry.transaction() as tx:
        now = tx.clock()
        tx.candidates.add(model, Challenger(2, 1, 7, now, now, 0.05, {}, "proven", now))
        tx.aliases.set(model, "champion", served, "anna", "I know better")
    assert compare(registry, model) == verdict
    assert word in last_reason(registry, model)
    assert champion(registry, model) == served
    assert compare(registry, model) is None


@pytest.mark.sqlite_only
def test_candidate_is_dropped_when_capture_is_disabled(registry: Registry) -> None:
    """Saved rows are compared first; the candidate would otherwise block all others."""
    model = a_champion(registry, CAPTURING)
    shadowed(registry, model, replace(WATCHING, capture=0.0), 3.0)
    assert compare(registry, model) == "compared"
    with registry.transaction() as tx:
        started = candidate(registry, model)
        tx.candidates.save(model, replace(started, turn=started.turn + 1, through=started.began_at))
    assert compare(registry, model) == "dropped"
    assert "`capture` is 0" in last_reason(registry, model)


def test_candidate_promoted_by_a_user_ends_its_comparison(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING)
    version = shadowed(registry, model, CAPTURING, 3.0)
    with registry.transaction() as tx:
        tx.aliases.set(model, "champion", version, "anna", "I know better")
    assert compare(registry, model) == "promoted"
    with registry.reading() as tx:
        assert tx.monitors.events(model, 1)[0].reason == "it was promoted by a user"


def test_only_one_candidate_and_one_refit_job_exist(registry: Registry) -> None:
    """Repeated requests add one job; a second refit reports the reason."""
    model = a_champion(registry, CAPTURING)
    shadowed(registry, model, CAPTURING, 3.0)
    with registry.transaction() as tx:
        for _ in range(3):
            request_refit(tx, model, "asked")
        assert len(tx.jobs.page(None, "queued", None, 10)) == 1
        assert refit_is_due(tx, model, "stale", tx.clock()) is None
    work(registry, REFIT)
    with registry.reading() as tx:
        (job, *_) = [
            listed_job
            for listed_job in tx.jobs.page(None, None, None, 10)
            if listed_job.kind == REFIT
        ]
    assert job.result is not None
    assert "being compared" in job.result["reason"]
    with pytest.raises(ConflictError), registry.transaction() as tx:
        tx.candidates.add(model, Challenger(1, 1, 0, 0, 0, 0.05, {}, None, None))


@pytest.mark.slow
@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    ("monitoring", "word"),
    [(WATCHING, "declare a `capture` rate"), (CAPTURING, "are needed")],
    ids=["no capture", "too few"],
)
def test_impossible_refit_is_reported_and_retried_later(
    registry: Registry, monitoring: MonitoringSettings, word: str
) -> None:
    model = a_champion(registry, monitoring)
    serve(registry, model, ago=2_400, temperature=9.0, save_logits=False)
    work(registry)
    assert story(registry, model) == [(1, "stale"), (1, "refit_impossible")]
    with registry.reading() as tx:
        reason = tx.monitors.events(model, 1)[0].reason
        assert word in reason
        assert ("since the drift began (2" in reason) is (monitoring is CAPTURING)
    work(registry)
    assert len(story(registry, model)) == 2
    with registry.reading() as tx:
        now = tx.clock()
        assert refit_is_due(tx, model, "stale", now) is None
        # Of a maturity of 120 s, rows of two cohorts have matured after 60 s; without `capture`
        # there are none.
        soon = refit_is_due(tx, model, "stale", now + 70)
        assert soon == ("the calibrator is stale" if monitoring.capture else None)
        assert refit_is_due(tx, model, "stale", now + 200) == "the calibrator is stale"
        assert refit_is_due(tx, model, "fresh", now + 200) is None
        daily = replace(model, monitoring=replace(monitoring, refit_every_seconds=86_400.0))
        assert refit_is_due(tx, daily, "fresh", now + 80_000) is None
        assert refit_is_due(tx, daily, "fresh", now + 90_000) == "every 86400 seconds"


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_failed_refit_is_retried_later(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed job leaves no event in the audit trail."""

    def broken(*args: object, **more: object) -> None:
        raise CorruptError("damaged")

    monkeypatch.setattr("training.refit_job.read_labelled_sample", broken)
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=2_400, temperature=9.0, save_logits=False)
    for _ in range(3):
        work(registry)
    with registry.reading() as tx:
        jobs = [job for job in tx.jobs.page(model, None, None, 100) if job.kind == REFIT]
        assert [job.state for job in jobs] == ["failed"]
        now = tx.clock()
        assert refit_is_due(tx, model, "stale", now) is None
        assert refit_is_due(tx, model, "stale", now + 200) == "the calibrator is stale"
