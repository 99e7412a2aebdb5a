"""Data sets by reference in a bucket of S3."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import fsspec
import numpy as np
import pytest

from recalib.contract.datasets import Dataset
from recalib.errors import InputError, UnavailableError
from recalib.registry import Registry
from recalib.registry.job_kinds import EVALUATE, FIT
from recalib.settings import Settings
from service.calibrators.handlers import request_fit
from service.calibrators.schemas import CalibratorCreate
from service.datasets.handlers import reference_dataset
from service.datasets.schemas import DatasetReference
from service.reader_pool import reader_pool
from tests.files.examples import write_npz, write_parquet
from tests.fitting.conftest import draw
from training.evaluation_job import run_evaluation
from training.fit_job import run_fit
from training.large_datasets import ClusterPolicy
from training.worker import Worker

pytestmark = [pytest.mark.sqlite_only, pytest.mark.slow]


@pytest.fixture
def files(bucket: str) -> Iterator[Any]:
    """A bucket with 600 rows in two files of a Hive partition, and another file."""
    filesystem = fsspec.filesystem("s3")
    filesystem.mkdir(bucket)
    logits, labels = draw(600, 4, 3.0)
    filesystem.pipe(f"{bucket}/m/val/day=1/a.parquet", write_parquet(logits[:200], labels[:200]))
    filesystem.pipe(f"{bucket}/m/val/day=2/b.npz", write_npz(logits[200:], labels[200:]))
    filesystem.pipe(f"{bucket}/other/c.npz", write_npz(logits, labels))
    # A child that runs has the address of an earlier store.
    reader_pool("references").close()
    yield filesystem
    filesystem.rm(bucket, recursive=True)
    reader_pool("references").close()


def _refer(registry: Registry, uri: str, name: str = "d") -> Dataset:
    settings = Settings(dataset_roots="s3://recalib/{model}")
    call = partial(
        reference_dataset, registry, settings, "m", name, "logits", DatasetReference(uri=uri)
    )
    return anyio.run(call)[0]


def _fit(registry: Registry, policy: ClusterPolicy) -> Any:
    with registry.transaction() as tx:
        job_id = request_fit(tx, tx.models.get("m"), CalibratorCreate(dataset="d")).id
    handlers = {
        FIT: partial(run_fit, policy=policy), EVALUATE: partial(run_evaluation, policy=policy)
    }  # fmt: skip
    Worker(registry, handlers, name="test").work_once(threading.Event())
    with registry.reading() as tx:
        return tx.jobs.get(job_id)


def test_bucket_is_read_in_place(registry: Registry, files: Any) -> None:
    with registry.transaction() as tx:
        tx.models.create("m", None, 4, "test")
    dataset = _refer(registry, "s3://recalib/m/val/")
    assert (dataset.rows, dataset.uri) == (600, "s3://recalib/m/val/")
    assert _refer(registry, "s3://recalib/m/val/**/*.npz", "npz").rows == 400
    with pytest.raises(InputError, match="RECALIB_DATASET_ROOTS"):
        _refer(registry, "s3://recalib/other/c.npz", "other")
    with pytest.raises(InputError, match="s3://recalib/m/none/"):
        _refer(registry, "s3://recalib/m/none/", "none")
    # In memory, and in parts in this process and on threads.
    parameters = []
    for policy in (
        ClusterPolicy(min_bytes=2**40), ClusterPolicy(), ClusterPolicy("threads:2")
    ):  # fmt: skip
        job = _fit(registry, policy)
        assert job.state == "succeeded", job.error
        with registry.reading() as tx:
            card = tx.calibrators.get(tx.models.get("m"), job.result["version"]).card
        assert card["data"]["digest"] == dataset.digest
        parameters.append(card["metrics"]["after"]["nll"]["value"])
    assert np.ptp(parameters) < 1e-6
    files.pipe("recalib/m/val/day=2/c#d.npz", b"")
    with pytest.raises(InputError, match=r"c#d\.npz'; accepted: names"):
        _refer(registry, "s3://recalib/m/val/", "later")
    # Another content with the same size has another ETag.
    path = "recalib/m/val/day=2/b.npz"
    logits, labels = draw(600, 4, 2.0)
    files.pipe(path, write_npz(logits[200:], labels[200:]))
    for policy in (ClusterPolicy(min_bytes=2**40), ClusterPolicy("threads:2")):
        job = _fit(registry, policy)
        assert job.state == "failed"
        assert f"s3://{path} has changed since the data set was registered" in job.error
    files.rm(path)
    assert f"s3://{path} does not exist any more" in _fit(registry, ClusterPolicy()).error


def test_outage_is_unavailable_and_does_not_name_the_store(registry: Registry, files: Any) -> None:
    with registry.transaction() as tx:
        tx.models.create("m", None, 4, "test")
    address = "http://127.0.0.1:9"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_S3", address)
        with pytest.raises(UnavailableError, match="cannot be read now") as caught:
            _refer(registry, "s3://recalib/m/val/")
    assert address not in str(caught.value)
