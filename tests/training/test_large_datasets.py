"""Jobs on large data sets: read in parts on a cluster, with the results of one read into memory."""

from __future__ import annotations

import io
import os
import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import softmax

import recalib.files.fragments
from recalib.calibrator import Calibrator
from recalib.core.card import DataSummary
from recalib.files import Input
from recalib.files.base import NO_SELECTION
from recalib.fitting.fit import fit
from recalib.registry import Job, Registry
from recalib.registry.job_kinds import EVALUATE, FIT, PUBLISH
from recalib.scale import row_sample
from recalib.scale import rows as scale_rows
from service.calibrators.handlers import request_fit
from service.calibrators.parameter_file import check_parameter_file
from service.calibrators.schemas import CalibratorCreate
from service.datasets.handlers import register_dataset
from service.datasets.survey import survey
from tests.fitting.conftest import draw
from training import champion_comparison, publish_job
from training.evaluation_job import run_evaluation
from training.fit_job import run_fit
from training.large_datasets import ClusterPolicy
from training.publish_job import run_publish
from training.worker import Worker

pytestmark = pytest.mark.sqlite_only

_PICTURES = "recalib.reporting.html_report.versions.draw_pictures"


@pytest.fixture
def stored(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry with 900 rows in one Parquet file of nine row groups, a fragment each."""
    divided = {"format": None, "max_bytes": 1, "selection": NO_SELECTION}
    monkeypatch.setattr(recalib.files.fragments.list_fragments, "__kwdefaults__", divided)
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 200)
    with registry.transaction() as tx:
        tx.models.create("m", None, 4, "test")
    _upload(registry, "d", *draw(900, 4, 3.0))
    return registry


def _upload(
    registry: Registry, name: str, values: Any, labels: Any, input: Input = "logits"
) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 4)
    file = io.BytesIO()
    pq.write_table(pa.table({input: lists, "labels": labels}), file, row_group_size=100)
    with registry.blobs.writer() as blob:
        blob.write(file.getvalue())
        summary = survey(file, "parquet", input, 4)
        size, digest = blob.size, blob.commit()
    kind = "application/vnd.apache.parquet"
    with registry.transaction() as tx:
        model = tx.models.get("m")
        register_dataset(tx, model, name, digest, size, kind, input, summary)


def _fit(
    registry: Registry, policy: ClusterPolicy, map: str, dataset: str = "d", **more: Any
) -> tuple[Job, Calibrator | None]:
    with registry.transaction() as tx:
        body = CalibratorCreate(dataset=dataset, map=map, **more)
        job_id = request_fit(tx, tx.models.get("m"), body).id
    Worker(registry, {FIT: partial(run_fit, policy=policy)}, name="test").work_once(
        threading.Event()
    )
    with registry.reading() as tx:
        job = tx.jobs.get(job_id)
        model = tx.models.get("m")
        if job.result is None:
            return job, None
        return job, Calibrator.from_bytes(tx.calibrators.parameters(model, job.result["version"]))


@pytest.mark.slow
def test_fit_in_parts_is_that_in_memory(stored: Registry) -> None:
    policies = ClusterPolicy(), ClusterPolicy("threads:2"), ClusterPolicy("threads:2", 1 << 30)
    for map in ("temperature", "vector"):
        calibrators = [_fit(stored, policy, map)[1] for policy in policies]
        memory, parts, small = (calibrator for calibrator in calibrators if calibrator is not None)
        for name, value in memory.parameters.items():
            assert parts.parameters[name] == pytest.approx(value, rel=1e-8, abs=1e-8)
            assert np.array_equal(small.parameters[name], value)
        assert parts.card.data == memory.card.data
        assert parts.card.metrics["after"]["nll"].value == pytest.approx(
            memory.card.metrics["after"]["nll"].value, rel=1e-6
        )
        assert parts.card.selection is not None


@pytest.mark.slow
def test_comparison_on_a_sample_pools_no_earlier_version(
    stored: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions are fitted on the same rows; the sample has 3% of them."""
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 39)
    _fit(stored, ClusterPolicy(), "temperature", promote=False)
    _, calibrator = _fit(stored, ClusterPolicy("threads:2"), "temperature", promote=False)
    assert calibrator is not None
    assert calibrator.card.selection is not None
    assert calibrator.card.selection.rows == 39
    assert calibrator.card.selection.pooled is None


@pytest.mark.slow
@pytest.mark.parametrize("input", ["logits", "probabilities"])
def test_rows_of_a_large_champion_are_recognised_in_parts(
    stored: Registry, monkeypatch: pytest.MonkeyPatch, input: Input
) -> None:
    values, labels = draw(1_200, 4, 3.0)
    if input == "probabilities":
        values = softmax(values, axis=1).astype(np.float32)
    _upload(stored, "old", values[:900], labels[:900], input)
    _upload(stored, "grown", values, labels, input)
    monkeypatch.setattr(champion_comparison, "read_rows", None)
    policy = ClusterPolicy("threads:2")
    _fit(stored, policy, "temperature", "old", promote=True)
    job, calibrator = _fit(stored, policy, "vector", "grown")
    assert calibrator is not None, job.error
    assert calibrator.card.selection is not None
    # The sample of both has 200 rows at the same distance.
    reason = calibrator.card.selection.reason
    assert "version 1 was fitted on 150 of the 200 rows" in reason


def test_auto_selects_a_map_on_a_sample_in_parts(stored: Registry) -> None:
    job, calibrator = _fit(stored, ClusterPolicy("threads:2"), "auto")
    assert calibrator is not None, job.error
    assert calibrator.card.choice is not None
    assert (calibrator.card.choice.rows, calibrator.card.data.rows) == (200, 900)


def test_objective_that_needs_all_rows_is_fitted_in_memory(stored: Registry) -> None:
    options = {"variant": "label_binned", "order": 1}
    policy = ClusterPolicy("threads:2")
    job, calibrator = _fit(stored, policy, "temperature", objective="sb_ece", options=options)
    assert (job.state, calibrator is None) == ("succeeded", False)


def test_cluster_that_cannot_be_reached_is_a_clear_failure(stored: Registry) -> None:
    job, _ = _fit(stored, ClusterPolicy("locale:2"), "temperature")
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.startswith("cluster: found 'locale:2'; accepted: threads:N")


def test_cancelled_fit_ends_between_parts(
    stored: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    surveyed = scale_rows._survey

    def cancel(kind: Any, task: Any) -> Any:
        read.append(task[1].name)
        with stored.transaction() as tx:
            tx.jobs.cancel(job_id)
        contexts[0].beat(60)
        return surveyed(kind, task)

    contexts: list[Any] = []

    def handler(context: Any) -> None:
        contexts.append(context)
        run_fit(context, ClusterPolicy("threads:1"))

    monkeypatch.setattr(scale_rows, "_survey", cancel)
    with stored.transaction() as tx:
        job_id = request_fit(tx, tx.models.get("m"), CalibratorCreate(dataset="d")).id
    Worker(stored, {FIT: handler}, name="test").work_once(threading.Event())
    with stored.reading() as tx:
        assert tx.jobs.get(job_id).state == "cancelled"
    assert len(read) < 9


@pytest.mark.slow
def test_evaluation_in_parts_has_the_figures_of_all_rows(
    stored: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_PICTURES, lambda *_: [])
    _fit(stored, ClusterPolicy(), "temperature")
    results = []
    for policy in (ClusterPolicy(), ClusterPolicy("threads:2")):
        payload = {"model": "m", "dataset": "d", "versions": ["identity", 1]}
        with stored.transaction() as tx:
            job = tx.jobs.enqueue(EVALUATE, payload, model=tx.models.get("m"))
        handler = partial(run_evaluation, policy=policy)
        Worker(stored, {EVALUATE: handler}, name="test").work_once(threading.Event())
        with stored.reading() as tx:
            job = tx.jobs.get(job.id)
        assert job.result is not None, job.error
        results.append(job.result)
    memory, parts = results
    assert parts["rows"] == memory["rows"] == 900
    assert parts["warnings"] == memory["warnings"]
    for expected, result in zip(memory["results"], parts["results"], strict=True):
        assert result["fitted_rows"] == expected["fitted_rows"]
        for name in ("nll", "accuracy", "ece"):
            value = expected["metrics"][name]["value"]
            assert result["metrics"][name]["value"] == pytest.approx(value, rel=1e-6)
    change, expected = (item["results"][1]["changes"]["nll"] for item in (parts, memory))
    assert change["value"] == pytest.approx(expected["value"], rel=1e-6)
    assert change["verdict"] == expected["verdict"] == "better"


def test_publication_reads_large_data_sets_in_parts(
    stored: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uploaded calibrator was fitted on the first 300 of 900 rows."""
    logits, labels = draw(900, 4, 3.0)
    _upload(stored, "own", logits[:300], labels[:300])
    with stored.reading() as tx:
        digest = tx.datasets.get(tx.models.get("m"), "own").digest
    fitted = fit(logits[:300], labels[:300], data=DataSummary(300, digest, "own.parquet"))
    content = check_parameter_file(fitted.to_bytes(), 4, None).to_bytes()
    monkeypatch.setattr(publish_job, "read_rows", None)
    payload = {"model": "m", "dataset": "d", "promote": "if_better"}
    with stored.transaction() as tx:
        model = tx.models.get("m")
        job_id = tx.jobs.enqueue(PUBLISH, payload, model=model, parameters=content).id
    handler = partial(run_publish, policy=ClusterPolicy("threads:2"))
    Worker(stored, {PUBLISH: handler}, name="test").work_once(threading.Event())
    with stored.reading() as tx:
        job = tx.jobs.get(job_id)
        assert job.result is not None, job.error
        card = tx.calibrators.get(model, job.result["version"]).card
    # Of the 900 rows, 200 are sampled; two thirds of these are after the first 300.
    assert 130 <= card["selection"]["rows"] <= 137
    assert card["selection"]["dataset"] == "d"


@pytest.mark.slow
def test_job_that_loses_a_worker_of_its_cluster_finishes(
    stored: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two processes of Dask is killed while the job runs."""
    reference = _fit(stored, ClusterPolicy("threads:1"), "vector")[1]
    killed: list[int] = []
    sum_of = scale_rows.FragmentRows.sum

    def kill(self: Any, kernel: Any, **options: Any) -> Any:
        if not killed:
            children = psutil.Process().children(recursive=True)
            workers = [c for c in children if "spawn_main" in " ".join(c.cmdline())]
            killed.append(workers[0].pid)
            os.kill(workers[0].pid, signal.SIGKILL)
        return sum_of(self, kernel, **options)

    monkeypatch.setattr(scale_rows.FragmentRows, "sum", kill)
    job, calibrator = _fit(stored, ClusterPolicy("local:2"), "vector")
    assert killed
    assert job.state == "succeeded", job.error
    assert reference is not None
    assert calibrator is not None
    assert all(np.array_equal(calibrator.parameters[k], v) for k, v in reference.parameters.items())
