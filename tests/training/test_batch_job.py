"""Batches: the result does not depend on where an attempt ended, and nothing else is left."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import recalib
from recalib import Calibrator
from recalib.registry import Job, Model, Registry
from recalib.registry.backup import named_blobs
from recalib.registry.job_kinds import BATCH
from recalib.registry.tables import METADATA
from tests.end_to_end.programs import until
from tests.files.examples import write_npz
from tests.fitting.conftest import draw
from tests.training.batch_worker import use_small_parts
from training import batch_job
from training.batch_parts import BatchParts, StoredPart
from training.checkpoint_blobs import sweep_checkpoints
from training.large_datasets import ClusterPolicy
from training.main import HANDLERS
from training.worker import Worker

_CLASSES = 50


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    logits, labels = draw(300, _CLASSES, 2.0)
    fitted: Calibrator = recalib.fit(logits, labels).fit_sets(logits, labels, "aps", 0.5)
    return fitted.fit_rejection(logits, labels, 0.75)


@pytest.fixture
def model(registry: Registry, calibrator: Calibrator) -> Model:
    """A model with one version."""
    with registry.transaction() as tx:
        model = tx.models.create("m", None, _CLASSES, "test")
        tx.jobs.enqueue("fit", {}, model=model)
        lease = tx.jobs.claim("w", ["fit"], 60)
        assert lease is not None
        card = calibrator.card.to_dict()
        tx.calibrators.publish(lease, model, None, card, calibrator.to_bytes(), None, "")
        tx.jobs.succeed(lease, {})
    return model


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_job, "_PART_BYTES", batch_job._PART_BYTES)
    monkeypatch.setattr(batch_job, "_CHUNK_BYTES", batch_job._CHUNK_BYTES)
    use_small_parts()


def logits_of(rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(3).normal(0, 4, (rows, _CLASSES)).astype(np.float32)


def enqueue(
    registry: Registry, model: Model, rows: int, format: str = "parquet", **answers: bool
) -> Job:
    """Upload rows, and enqueue their calibration."""
    with registry.blobs.writer() as blob:
        blob.write(write_npz(logits_of(rows), None))
        with registry.storing(blob) as (tx, digest):
            payload = {
                "model": model.name, "dataset": None, "version": 1, "format": format,
                "input": "logits", "rows": rows, "digest": digest,
                "media_type": "application/x-npz", **answers,
            }  # fmt: skip
            return tx.jobs.enqueue(BATCH, payload, model=model, checkpoint={"upload": digest})


def enqueue_divided(
    registry: Registry, model: Model, scores: NDArray[np.float32], input: str = "logits"
) -> Job:
    """Upload scores in a Parquet file with row groups of 100, and enqueue their calibration."""
    file, rows = io.BytesIO(), len(scores)
    values = pa.FixedSizeListArray.from_arrays(pa.array(scores.ravel()), _CLASSES)
    pq.write_table(pa.table({input: values}), file, row_group_size=100)
    with registry.blobs.writer() as blob:
        blob.write(file.getvalue())
        with registry.storing(blob) as (tx, digest):
            payload = {
                "model": model.name, "dataset": None, "version": 1, "format": "npz",
                "input": input, "rows": rows, "digest": digest,
                "media_type": "application/vnd.apache.parquet",
            }  # fmt: skip
            return tx.jobs.enqueue(BATCH, payload, model=model, checkpoint={"upload": digest})


def work(
    registry: Registry, stop: threading.Event | None = None, cluster: str | None = None
) -> bool:
    handlers = (
        {BATCH: partial(batch_job.run_batch, policy=ClusterPolicy(cluster))} if cluster else {}
    )
    worker = Worker(registry, {**HANDLERS, **handlers}, name="test")
    return worker.work_once(stop or threading.Event())


def job_of(registry: Registry, job: Job) -> Job:
    with registry.reading() as tx:
        return tx.jobs.get(job.id)


def file_of(registry: Registry, job: Job) -> bytes:
    """Return the file of a batch that has succeeded."""
    finished = job_of(registry, job)
    assert finished.state == "succeeded", finished.error
    assert finished.result is not None
    ((name, file),) = finished.result["files"].items()
    assert name == f"probabilities.{job.payload['format']}"
    with registry.blobs.open(file["digest"]) as stream:
        content = stream.read()
    assert len(content) == file["bytes"]
    return content


def blobs(tmp_path: Path) -> set[str]:
    """Return the names of all files in the blob store."""
    return {path.name for path in (tmp_path / "blobs").rglob("*") if path.is_file()}


@pytest.mark.parametrize("format", ["parquet", "npz"])
def test_file_has_the_probabilities_of_all_rows(
    registry: Registry,
    model: Model,
    calibrator: Calibrator,
    small_parts: None,
    tmp_path: Path,
    format: str,
) -> None:
    """In order, in float32 as the rows are; parts and uploaded rows are removed."""
    job = enqueue(registry, model, 350, format)
    assert work(registry)
    content = io.BytesIO(file_of(registry, job))
    if format == "npz":
        probabilities = np.load(content)["probabilities"]
    else:
        table = pq.read_table(content)
        assert table.column_names == ["probabilities"]
        probabilities = np.array(table["probabilities"].to_pylist(), np.float32)
    assert probabilities.dtype == np.float32
    expected = calibrator.predict(logits_of(350))
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5, atol=1e-7)
    finished = job_of(registry, job)
    assert finished.checkpoint is None
    assert finished.result is not None
    digest = finished.result["files"][f"probabilities.{format}"]["digest"]
    assert blobs(tmp_path) == {digest}


@pytest.mark.sqlite_only
@pytest.mark.parametrize("format", ["parquet", "npz"])
def test_sets_and_accepted_rows_are_beside_the_probabilities(
    registry: Registry, model: Model, calibrator: Calibrator, small_parts: None, format: str
) -> None:
    """Those of the library, over several parts, and the probabilities of a batch without them."""
    job, without = (
        enqueue(registry, model, 350, format, **dict.fromkeys(asked, True))
        for asked in (["sets", "accepted"], [])
    )
    assert work(registry)
    assert work(registry)
    contents = [io.BytesIO(file_of(registry, each)) for each in (job, without)]
    if format == "npz":
        answers, plain = (dict(np.load(content)) for content in contents)
    else:
        answers, plain = (
            {name: np.array(values) for name, values in pq.read_table(content).to_pydict().items()}
            for content in contents
        )
    assert list(answers) == ["probabilities", "sets", "accepted"]
    assert list(plain) == ["probabilities"]
    np.testing.assert_array_equal(answers["probabilities"], plain["probabilities"])
    assert answers["sets"].dtype == np.bool_
    np.testing.assert_array_equal(answers["sets"], calibrator.predict_set(logits_of(350)))
    accepted = calibrator.is_accepted(logits_of(350))
    assert set(accepted.tolist()) == {False, True}
    assert answers["accepted"].dtype == np.bool_
    np.testing.assert_array_equal(answers["accepted"], accepted)


def test_stopped_batch_goes_on_from_its_last_part(
    registry: Registry, model: Model, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt reads no row again, and the file has the same bytes."""
    undisturbed = enqueue(registry, model, 350)
    work(registry)
    expected = file_of(registry, undisturbed)

    stop, add = threading.Event(), BatchParts.add
    sizes: list[int] = []

    def stop_after_two(self: BatchParts, blob: Any, rows: int) -> None:
        add(self, blob, rows)
        sizes.append(rows)
        if len(sizes) == 2:
            stop.set()

    monkeypatch.setattr(BatchParts, "add", stop_after_two)
    job = enqueue(registry, model, 350)
    work(registry, stop)
    stopped = job_of(registry, job)
    assert (stopped.state, stopped.attempts) == ("queued", 0)
    assert stopped.checkpoint is not None
    assert len(stopped.checkpoint["parts"]) == 2
    assert work(registry)
    assert file_of(registry, job) == expected
    assert sizes == [100, 100, 100, 50]


def test_cancelled_batch_leaves_no_blob(
    registry: Registry,
    model: Model,
    small_parts: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """While it is queued, and while it runs."""
    queued = enqueue(registry, model, 150)
    with registry.transaction() as tx:
        tx.jobs.cancel(queued.id)
    sweep_checkpoints(registry)
    assert blobs(tmp_path) == set()

    add = BatchParts.add

    def cancel(self: BatchParts, blob: Any, rows: int) -> None:
        add(self, blob, rows)
        with registry.transaction() as tx:
            tx.jobs.cancel(running.id)
        self._context.beat(60)

    monkeypatch.setattr(BatchParts, "add", cancel)
    running = enqueue(registry, model, 350)
    work(registry)
    assert job_of(registry, running).state == "cancelled"
    assert blobs(tmp_path) == {running.payload["digest"]}
    sweep_checkpoints(registry)
    assert blobs(tmp_path) == set()
    assert job_of(registry, running).checkpoint is None


@pytest.mark.sqlite_only
@pytest.mark.parametrize("next_cluster", ["threads:1", None])
def test_batch_on_a_cluster_resumes_from_its_last_part(
    registry: Registry,
    model: Model,
    calibrator: Calibrator,
    small_parts: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    next_cluster: str | None,
) -> None:
    """The file has the same bytes for any workers, and without the cluster in the next attempt."""
    undisturbed = enqueue_divided(registry, model, logits_of(650))
    assert work(registry, cluster="threads:3")
    expected = file_of(registry, undisturbed)
    probabilities = np.load(io.BytesIO(expected))["probabilities"]
    np.testing.assert_allclose(probabilities, calibrator.predict(logits_of(650)), rtol=1e-5)
    result = set(blobs(tmp_path))
    assert len(result) == 1  # no part, upload or marker

    stop, add_stored = threading.Event(), BatchParts.add_stored
    sizes: list[int] = []

    def stop_after_two(self: BatchParts, part: StoredPart) -> None:
        add_stored(self, part)
        sizes.append(part.rows)
        if len(sizes) == 2:
            stop.set()

    monkeypatch.setattr(BatchParts, "add_stored", stop_after_two)
    job = enqueue_divided(registry, model, logits_of(650))
    work(registry, stop, cluster="threads:1")
    checkpoint = job_of(registry, job).checkpoint
    assert checkpoint is not None
    assert len(checkpoint["parts"]) == 2
    assert work(registry, cluster=next_cluster)
    assert file_of(registry, job) == expected
    assert sizes == [100] * 6 + [50]
    # Parts that were stored and not listed are left to the sweep.
    registry.sweep(older_than_seconds=-60)
    assert blobs(tmp_path) == result


@pytest.mark.sqlite_only
def test_batch_of_a_multilabel_model_is_not_divided(registry: Registry, small_parts: None) -> None:
    """Its rows, which have no fixed sum, are calibrated by the worker."""
    logits = logits_of(350)
    fitted = recalib.fit(logits, logits > 1, task="multilabel")
    with registry.transaction() as tx:
        model = tx.models.create("tagger", None, _CLASSES, "test", task="multilabel")
        tx.jobs.enqueue("fit", {}, model=model)
        lease = tx.jobs.claim("w", ["fit"], 60)
        assert lease is not None
        tx.calibrators.publish(
            lease, model, None, fitted.card.to_dict(), fitted.to_bytes(), None, ""
        )
        tx.jobs.succeed(lease, {})
    scores = 1 / (1 + np.exp(-logits))
    job = enqueue_divided(registry, model, scores, "probabilities")
    work(registry, cluster="threads:2")
    probabilities = np.load(io.BytesIO(file_of(registry, job)))["probabilities"]
    expected = fitted.predict(scores, input="probabilities")
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)


@pytest.mark.sqlite_only
def test_cancelled_batch_on_a_cluster_leaves_no_blob(
    registry: Registry,
    model: Model,
    small_parts: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    add_stored = BatchParts.add_stored

    def cancel(self: BatchParts, part: StoredPart) -> None:
        add_stored(self, part)
        with registry.transaction() as tx:
            tx.jobs.cancel(job.id)
        self._context.beat(60)

    monkeypatch.setattr(BatchParts, "add_stored", cancel)
    job = enqueue_divided(registry, model, logits_of(650))
    work(registry, cluster="threads:2")
    assert job_of(registry, job).state == "cancelled"
    sweep_checkpoints(registry)
    registry.sweep(older_than_seconds=-60)
    assert blobs(tmp_path) == set()


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_batch_that_loses_a_worker_of_its_cluster_finishes(
    registry: Registry,
    model: Model,
    small_parts: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of two processes of Dask is killed after the first part."""
    rows, add_stored = 5_000, BatchParts.add_stored
    undisturbed = enqueue_divided(registry, model, logits_of(rows))
    work(registry, cluster="threads:1")
    expected, killed = file_of(registry, undisturbed), []

    def kill(self: BatchParts, part: StoredPart) -> None:
        add_stored(self, part)
        if not killed:
            for child in psutil.Process().children(recursive=True):
                if child.status() != psutil.STATUS_ZOMBIE and "spawn_main" in str(child.cmdline()):
                    child.kill()
                    killed.append(child.pid)
                    break

    monkeypatch.setattr(BatchParts, "add_stored", kill)
    job = enqueue_divided(registry, model, logits_of(rows))
    work(registry, cluster="local:2")
    assert killed
    assert file_of(registry, job) == expected


def test_upload_that_is_a_data_set_too_is_kept(
    registry: Registry, model: Model, small_parts: None, tmp_path: Path
) -> None:
    job = enqueue(registry, model, 150)
    digest = job.payload["digest"]
    with registry.transaction() as tx:
        tx.datasets.create(
            model, "same", digest, 150, _CLASSES, 1, "application/x-npz", "logits", {}
        )
    work(registry)
    assert digest in blobs(tmp_path)


@pytest.mark.sqlite_only
def test_short_jobs_do_not_wait_for_a_batch(
    registry: Registry, model: Model, small_parts: None
) -> None:
    """The worker runs them between two chunks, and the batch goes on."""
    short = Worker(registry, {"short": lambda context: None}, name="test")
    handler = partial(batch_job.run_batch, pause=lambda: short.work_once(threading.Event()))
    job = enqueue(registry, model, 350)
    with registry.transaction() as tx:
        others = [tx.jobs.enqueue("short", {}) for _ in range(3)]
    Worker(registry, {BATCH: handler}, name="test").work_once(threading.Event())
    finished = [job_of(registry, other) for other in (job, *others)]
    assert {item.state for item in finished} == {"succeeded"}
    times = [item.finished_at or 0.0 for item in finished]
    assert max(times[1:]) < times[0]


@pytest.mark.sqlite_only
def test_backup_has_what_a_batch_goes_on_from(
    registry: Registry, model: Model, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The uploaded rows and the parts of an unfinished batch, and the file of a finished one."""
    stop, add = threading.Event(), BatchParts.add

    def stop_at_once(self: BatchParts, blob: Any, rows: int) -> None:
        add(self, blob, rows)
        stop.set()

    job = enqueue(registry, model, 350)
    with monkeypatch.context() as patch:
        patch.setattr(BatchParts, "add", stop_at_once)
        work(registry, stop)
    checkpoint = job_of(registry, job).checkpoint
    assert checkpoint is not None
    expected = {checkpoint["upload"], checkpoint["parts"][0]["digest"]}
    tables = list(METADATA.sorted_tables)
    with registry.reading() as tx:
        assert set(named_blobs(tx.connection, tables)) == expected
    work(registry)
    file_of(registry, job)
    with registry.reading() as tx:
        (description,) = named_blobs(tx.connection, tables).values()
    assert description == f"probabilities.parquet of batch job {job.id}"


@pytest.mark.sqlite_only
def test_deleted_version_fails_the_batch(registry: Registry, model: Model, tmp_path: Path) -> None:
    job = enqueue(registry, model, 150)
    with registry.transaction() as tx:
        other = tx.jobs.enqueue(BATCH, {**job.payload, "version": 7}, model=model)
        tx.jobs.cancel(job.id)
    work(registry)
    failed = job_of(registry, other)
    assert (failed.state, failed.error) == (
        "failed",
        "version '7' does not exist; m has no such version",
    )


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_memory_does_not_grow_with_the_file(registry: Registry, model: Model) -> None:
    """Rows of 80 MB are read, calibrated and written in chunks of 8 MiB."""
    job = enqueue(registry, model, 400_000)
    tracemalloc.start()
    try:
        work(registry)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert job_of(registry, job).state == "succeeded"
    assert peak < 80_000_000


# Leases on PostgreSQL: `tests/training/test_processes.py`.
@pytest.mark.sqlite_only
@pytest.mark.slow
def test_killed_worker_loses_at_most_a_part(
    registry: Registry,
    model: Model,
    small_parts: None,
    database_url: str,
    blob_url: str,
    tmp_path: Path,
) -> None:
    """kill -9 in the middle; another worker goes on, and the file has the same bytes."""
    rows = 8_000
    undisturbed = enqueue(registry, model, rows)
    work(registry)
    expected = file_of(registry, undisturbed)

    job = enqueue(registry, model, rows)
    command = [sys.executable, "-m", "tests.training.batch_worker", database_url, blob_url]
    process = subprocess.Popen(command)
    try:
        until(lambda: len(_parts(job_of(registry, job))) >= 3, "three parts")
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    killed = job_of(registry, job)
    assert killed.state == "running"
    assert 3 <= len(_parts(killed)) < 80
    until(lambda: work(registry), "the end of the lease")
    assert job_of(registry, job).attempts == 2
    assert file_of(registry, job) == expected
    # A part that was being written has a temporary file, which a sweep removes after a day.
    registry.sweep(older_than_seconds=-60)
    digests = {
        file["digest"]
        for finished in (undisturbed, job)
        for file in (job_of(registry, finished).result or {})["files"].values()
    }
    assert blobs(tmp_path) == digests


def _parts(job: Job) -> list[Any]:
    parts: list[Any] = (job.checkpoint or {}).get("parts", [])
    return parts
