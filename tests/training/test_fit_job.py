"""The fit job: the published calibrator, and comparison with the current champion."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import training.champion_comparison
import training.dataset_rows
import training.fit_job
from recalib.calibrator import Calibrator
from recalib.registry import Registry
from service.calibrators.handlers import request_fit
from service.calibrators.schemas import CalibratorCreate
from service.datasets.handlers import register_dataset
from service.datasets.survey import survey
from tests.fitting.conftest import draw
from tests.service.conftest import npz
from training.main import HANDLERS
from training.worker import Worker

pytestmark = pytest.mark.sqlite_only


def with_data(registry: Registry, temperature: float = 3.0) -> None:
    logits, labels = draw(600, 4, temperature)
    with registry.blobs.writer() as blob:
        blob.write(npz(logits, labels))
        with blob.open_temporary() as file:
            survey_result = survey(file, "npz", "logits", 4)
        size, digest = blob.size, blob.commit()
    with registry.transaction() as tx:
        model = tx.models.create("m", None, 4, "test")
        register_dataset(tx, model, "d", digest, size, "application/x-npz", "logits", survey_result)


def ask(registry: Registry, **more: Any) -> str:
    with registry.transaction() as tx:
        return request_fit(tx, tx.models.get("m"), CalibratorCreate(dataset="d", **more)).id


def work(registry: Registry) -> None:
    worker = Worker(registry, HANDLERS, name="test")
    while worker.work_once(threading.Event()):
        pass


@pytest.mark.both_databases
def test_fit_publishes_the_fitted_calibrator(registry: Registry) -> None:
    with_data(registry)
    job_id = ask(registry)
    work(registry)
    with registry.reading() as tx:
        job = tx.jobs.get(job_id)
        model = tx.models.get("m")
        row = tx.calibrators.get(model, 1)
        calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, 1))
        champion = tx.aliases.get(model, "champion")
    assert job.state == "succeeded"
    assert row.card == calibrator.card.to_dict()
    assert champion.version == 1
    assert float(calibrator.parameters["temperature"]) == pytest.approx(3, rel=0.2)


@pytest.mark.slow
def test_auto_publishes_the_chosen_map(registry: Registry) -> None:
    """Version and comparison are of the chosen map."""
    with_data(registry)
    job_id = ask(registry, map="auto")
    work(registry)
    with registry.reading() as tx:
        job = tx.jobs.get(job_id)
        card = tx.calibrators.get(tx.models.get("m"), 1).card
    assert job.state == "succeeded", job.error
    assert job.result is not None
    assert job.result["map"] == card["map"] == card["choice"]["map"] == "temperature"
    assert job.result["reason"].startswith("temperature beats identity")
    assert {"temperature", "vector"} <= {row["map"] for row in card["choice"]["candidates"]}


@pytest.mark.both_databases
def test_comparison_is_repeated_when_the_champion_changes(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two concurrent fits both beat the old champion; the later must also beat the earlier."""
    with_data(registry)
    ask(registry, promote=False)
    work(registry)
    compare, references = training.champion_comparison.compare_by_cross_validation, []

    def slow(candidate: Any, reference: Any, *args: Any, **more: Any) -> Any:
        selection = compare(candidate, reference, *args, **more)
        references.append(selection.reference)
        if len(references) == 1:  # version 1 is promoted during the comparison with identity
            with registry.transaction() as tx:
                tx.aliases.set(tx.models.get("m"), "champion", 1, "other", "")
        return selection

    monkeypatch.setattr(training.champion_comparison, "compare_by_cross_validation", slow)
    job_id = ask(registry)
    work(registry)
    with registry.reading() as tx:
        job = tx.jobs.get(job_id)
        assert tx.aliases.get(tx.models.get("m"), "champion").version == 1
    assert references == ["identity", "temperature"]
    assert job.result is not None
    assert job.result["promoted"] is False
    assert "does not beat temperature" in job.result["reason"]


def test_invalid_payload_fails_without_retry(registry: Registry) -> None:
    with registry.transaction() as tx:
        job_id = tx.jobs.enqueue("fit", {"model": "m"}).id
    work(registry)
    with registry.reading() as tx:
        job = tx.jobs.get(job_id)
    assert (job.state, job.attempts) == ("failed", 1)
    assert "payload" in (job.error or "")


def test_cancelling_stops_a_fit(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    with_data(registry)
    job_id = ask(registry)
    read = training.dataset_rows.read

    def cancel_while_reading(*args: Any, **more: Any) -> Any:
        with registry.transaction() as tx:
            tx.jobs.cancel(job_id)
        return read(*args, **more)

    monkeypatch.setattr(training.dataset_rows, "read", cancel_while_reading)
    worker = Worker(registry, HANDLERS, name="test", lease_seconds=0.3)
    monkeypatch.setattr(training.fit_job, "fit", slow_fit)
    worker.work_once(threading.Event())
    with registry.reading() as tx:
        assert tx.jobs.get(job_id).state == "cancelled"
        assert tx.calibrators.page(tx.models.get("m"), None, 10) == []


def slow_fit(*args: Any, progress: Any, **more: Any) -> Any:
    """A fit that is long enough for a heartbeat."""
    for iteration in range(600):
        threading.Event().wait(0.05)
        progress("slow", iteration, 0.0)
    raise AssertionError("never cancelled")


@pytest.mark.usefixtures("all_folds")
def test_labels_reach_the_card(registry: Registry) -> None:
    with_data(registry)
    ask(registry, map="class_temperature", promote=True)
    work(registry)
    with registry.reading() as tx:
        card = tx.calibrators.get(tx.models.get("m"), 1).card
    assert card["selection"]["folds"] == 20
    assert np.isfinite(card["selection"]["nll"])
