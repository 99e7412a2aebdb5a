"""Prediction sets and accepted rows in the monitoring job and its alert."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.contract.alerts import Alert
from recalib.registry import Registry
from recalib.registry.alerts import next_command
from recalib.registry.job_kinds import REFIT
from tests.training.test_refit_job import shadowed, work
from tests.training.watched import CAPTURING, MATURITY, a_champion, serve
from training.monitoring_job import _read_state, watch
from training.refit_job import request_refit
from training.shadow_comparison import compare

pytestmark = pytest.mark.sqlite_only


def least_probable(probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return labels that are as often right, and otherwise the least probable class."""
    right = np.random.default_rng(0).random(len(probabilities)) < probabilities.max(axis=1)
    return np.where(right, probabilities.argmax(axis=1), probabilities.argmin(axis=1))


def test_lost_coverage_is_found_in_captured_rows(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING, sets=True)
    serve(
        registry, model, ago=4_000, temperature=3.0, rows=1_500, seconds=2_000, label=least_probable
    )
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    assert (row.status["state"], row.status["segment"]) == ("stale", "(sets)")
    alert = row.status["alert"]
    assert alert["confidence"] == pytest.approx(0.9)
    assert alert["accuracy"] < 0.85
    assert "the promised coverage is too high by" in alert["summary"]
    # All predictions have labels; a file of logits is longer than a cohort here.
    assert row.status["segments"]["(sets)"]["evidence"]["coverage"] == 1.0
    assert "cannot be compared" not in row.status["reason"]

    # A candidate whose probabilities are no better may have the thresholds that repair the sets.
    shadowed(registry, model, CAPTURING, 30.0)
    assert compare(registry, model) == "proven"
    with registry.reading() as tx:
        assert "broke their promise" in tx.monitors.events(model, 1)[0].reason


def test_label_that_is_written_while_its_cohort_is_read_is_no_error(registry: Registry) -> None:
    """The sample of logits is read later, and has it."""
    model = a_champion(registry, CAPTURING, sets=True)
    serve(registry, model, ago=4_000, temperature=3.0, rows=100)
    with registry.reading() as tx:
        live = _read_state(tx, model, tx.aliases.get(model, "champion"))[1]
        cohort = next(live.read(tx, 0.0))
    late = replace(cohort, labels=cohort.labels.select(np.zeros(0, np.intp)))
    assert live.add(registry, late, None) is not None


def less_often_right(probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return labels by which confidences are too high by 0.2."""
    right = np.random.default_rng(0).random(len(probabilities)) < probabilities.max(axis=1) - 0.2
    return np.where(right, probabilities.argmax(axis=1), probabilities.argmin(axis=1))


def test_broken_risk_is_found_in_captured_rows(registry: Registry) -> None:
    """The settings tolerate the error of the confidence; a risk has no tolerance."""
    settings = replace(CAPTURING, tolerance=0.3, objective=0.4)
    model = a_champion(registry, settings, max_risk=0.4)
    rows = {"ago": 4_000, "temperature": 3.0, "rows": 1_500, "seconds": 2_000}
    serve(registry, model, **rows, label=less_often_right)
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    assert (row.status["state"], row.status["segment"]) == ("stale", "(accepted)")
    alert = row.status["alert"]
    assert alert["confidence"] == pytest.approx(0.6)
    assert alert["accuracy"] < 0.55
    assert "the promised accuracy is too high by" in alert["summary"]


def test_refit_without_a_threshold_says_what_to_do(registry: Registry) -> None:
    """The champion stays, and the next command shows the reason; a refit would end the same way."""
    settings = replace(CAPTURING, tolerance=0.3, objective=0.4)
    model = a_champion(registry, settings, max_risk=0.4)

    def nearly_random(probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
        return np.random.default_rng(0).integers(0, 4, len(probabilities))

    rows = {"ago": 4_000, "temperature": 3.0, "rows": 1_500, "seconds": 2_000}
    serve(registry, model, **rows, label=nearly_random)
    watch(registry, model)
    with registry.transaction() as tx:
        row = tx.monitors.find(model, 1)
        assert row is not None
        assert row.status["state"] == "stale"
        assert row.status["alert"]["command"] == "recalib api refit model=resnet"
        request_refit(tx, model, "the calibrator is stale")
    work(registry, REFIT)
    with registry.reading() as tx:
        (event, *_) = tx.monitors.events(model, 1)
        alert = Alert.model_validate(row.status["alert"])
        command = next_command(tx, model, alert, "")
        champion = tx.aliases.find(model, "champion")
    assert event.kind == "refit_impossible"
    assert "no threshold of rejection certain to keep the risk of 0.4" in event.reason
    assert "the champion stays" in event.reason
    assert event.reason.endswith("recalib api fit model=resnet dataset=NAME max_risk:=0.8")
    assert command == "recalib monitoring resnet"
    assert champion is not None
    assert champion.version == 1


def test_time_without_labels_does_not_stop_the_monitoring_of_promises(registry: Registry) -> None:
    """Labels that come too late leave captured rows without any."""
    model = a_champion(registry, CAPTURING, sets=True, max_risk=0.4)
    rows = {"temperature": 3.0, "rows": 300, "seconds": 300}
    serve(registry, model, ago=4_000, **rows, delay=MATURITY + 1)
    serve(registry, model, ago=2_000, **rows, seed=2)
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    assert set(row.status["segments"]) == {"(sets)", "(accepted)"}
    assert row.status["segments"]["(sets)"]["evidence"]["labels"] == 300


def test_without_captured_rows_sets_are_not_monitored(registry: Registry) -> None:
    model = a_champion(registry, CAPTURING, sets=True)
    serve(registry, model, ago=4_000, temperature=3.0, rows=500, save_logits=False)
    watch(registry, model)
    with registry.reading() as tx:
        row = tx.monitors.find(model, 1)
    assert row is not None
    assert row.status["segments"] == {}
