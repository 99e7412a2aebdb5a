"""Batches over REST and gRPC: a data set or an upload, calibrated by a worker, downloaded."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.files.examples import write_csv, write_npz, write_parquet
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, Service
from tests.service.stubs import Rpc, refused, violations
from training.checkpoint_blobs import sweep_checkpoints

DIGITS = "/v1/models/digits"
BATCHES = f"{DIGITS}/batches"


JSON = {"Content-Type": "application/json"}


def rows(count: int = 40) -> NDArray[np.float32]:
    return draw(count, 4, 3.0, seed=8)[0].astype(np.float32)


def upload(service: Service, content: bytes, headers: dict[str, str] = NPZ, **query: Any) -> Any:
    return service.client.post(BATCHES, content=content, headers=headers, params=query)


def probabilities(service: Service, job: Any) -> NDArray[Any]:
    """Run the job; return the array in its file."""
    assert job.status_code == 202, job.text
    service.work()
    batch = service.client.get(f"{BATCHES}/{job.json()['id']}").json()
    assert batch["state"] == "succeeded", batch["error"]
    answer = service.client.get(f"{BATCHES}/{batch['id']}/content")
    assert len(answer.content) == batch["size_bytes"]
    content = io.BytesIO(answer.content)
    if answer.headers["content-type"] == "application/x-npz":
        values: NDArray[Any] = np.load(content)["probabilities"]
        return values
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    return np.array(pq.read_table(content)["probabilities"].to_pylist())


def test_batch_of_a_data_set_equals_calibrate(ready: Service) -> None:
    """A later promotion does not change the version: it is the champion of the request's time."""
    job = ready.client.post(BATCHES, json={"dataset": "validation", "format": "npz"})
    queued = ready.client.get(f"{BATCHES}/{job.json()['id']}").json()
    described = [queued[name] for name in ("state", "version", "dataset", "rows", "digest")]
    assert described == ["queued", 1, "validation", 600, None]
    assert ready.client.get(f"{BATCHES}/{queued['id']}/content").status_code == 404
    ready.fitted(map="identity", promote=True)
    actual = probabilities(ready, job)
    assert actual.shape == (600, 4)
    logits = draw(600, 4, 3.0)[0]
    expected = ready.calibrate(logits[:50], calibrator=1).json()["probabilities"]
    np.testing.assert_allclose(actual[:50], expected, atol=1e-6)


def test_batch_of_an_upload_needs_no_labels(ready: Service) -> None:
    headers = {"Content-Type": "application/vnd.apache.parquet"}
    job = upload(ready, write_parquet(rows(), None), headers, version="1")
    expected = ready.calibrate(rows()).json()["probabilities"]
    np.testing.assert_allclose(probabilities(ready, job), expected, atol=1e-6)


@pytest.mark.sqlite_only
def test_batch_of_a_json_file(ready: Service) -> None:
    """JSON with rows is an upload; its other fields are in the query."""
    expected = ready.calibrate(rows()).json()["probabilities"]
    content = json.dumps({"logits": rows().tolist()}).encode()
    job = upload(ready, content, JSON, version="1", format="npz")
    np.testing.assert_allclose(probabilities(ready, job), expected, atol=1e-6)


def test_batch_of_probabilities(ready: Service) -> None:
    logits = rows()
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    job = upload(ready, write_npz(shares, None, "probabilities"), input="probabilities")
    expected = ready.calibrate(logits).json()["probabilities"]
    np.testing.assert_allclose(probabilities(ready, job), expected, atol=1e-5)


def test_cancelled_batch_leaves_no_blob(ready: Service, tmp_path: Path) -> None:
    def stored() -> set[Path]:
        return {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()}

    before = stored()
    job = upload(ready, write_npz(rows(), None)).json()
    assert len(stored()) == len(before) + 1
    assert ready.client.delete(f"/v1/jobs/{job['id']}").json()["state"] == "cancelled"
    assert ready.client.get(f"{BATCHES}/{job['id']}").json()["state"] == "cancelled"
    sweep_checkpoints(ready.registry)
    assert stored() == before


def test_repeated_upload_is_one_batch(ready: Service, tmp_path: Path) -> None:
    """Also when the batch has ended meanwhile, and its rows are gone."""
    key = {**NPZ, "Idempotency-Key": "again"}
    content = write_npz(rows(), None)
    ids = {upload(ready, content, key).json()["id"] for _ in range(2)}
    ready.work()
    stored = {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    ids.add(upload(ready, content, key).json()["id"])
    assert len(ids) == 1
    assert {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()} == stored
    other = upload(ready, write_npz(rows(41), None), key)
    assert other.status_code == 409
    assert {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()} == stored


@pytest.mark.sqlite_only
def test_batches_are_listed_by_page(ready: Service) -> None:
    """Newest first, of this model only."""
    ids = [ready.client.post(BATCHES, json={"dataset": "validation"}).json()["id"] for _ in "abc"]
    first = ready.client.get(f"{BATCHES}?limit=2").json()
    second = ready.client.get(f"{BATCHES}?cursor={first['next_cursor']}").json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    ready.model("other")
    assert ready.client.get("/v1/models/other/batches").json()["items"] == []
    assert ready.client.get(f"/v1/models/other/batches/{ids[0]}").status_code == 404


@pytest.mark.sqlite_only
def test_impossible_batches_are_rejected_before_a_job_exists(
    ready: Service, tmp_path: Path
) -> None:
    """No job exists, and no blob is left."""
    before = {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()}
    cases: list[tuple[bytes, dict[str, str], dict[str, str], int, str]] = [
        (b"", NPZ, {}, 422, "body: found nothing"),
        (b"no zip", NPZ, {}, 422, "data: found a file that cannot be read as npz"),
        (write_npz(np.zeros((3, 5)), None), NPZ, {}, 422, "logits: found 5 classes; accepted: 4"),
        (write_npz(rows(), None), NPZ, {"version": "9"}, 404, "version '9' does not exist"),
        (write_npz(rows(), None), NPZ, {"format": "csv"}, 422, "query.format"),
        (write_npz(rows(), None), NPZ, {"input": "probabilities"}, 422, "probabilities"),
        (write_csv(rows(), None), {"Content-Type": "text/plain"}, {}, 415, "Content-Type"),
        (b'{"dataset": "none"}', JSON, {}, 404, "dataset 'none' does not exist"),
        (b'{"dataset": "validation"}', JSON, {"version": "1"}, 422, "query: found version"),
        (b'{"dataset": "validation", "format": "csv"}', JSON, {}, 422, "format: found 'csv'"),
        (b'{"version": 1}', JSON, {}, 422, "dataset: found nothing"),
        (b"{", JSON, {}, 422, "body: found malformed JSON"),
        (b'{"logits": [[1, 2, 3]]}', JSON, {}, 422, "logits: found 3 classes; accepted: 4"),
        (b'{"logits": []}', JSON, {}, 422, "logits"),
        (b'{"rows": []}', JSON, {"version": "1"}, 422, "logits: found 'rows'"),
        (b"[1]", JSON, {"version": "1"}, 422, "data: found"),
        (b'{"dataset": "validation", "logits": []}', JSON, {}, 422, "logits"),
        (b'{"logits": [[1, 2, 3, NaN]]}', JSON, {}, 422, "body: found malformed JSON"),
    ]
    for content, headers, query, status, message in cases:
        answer = upload(ready, content, headers, **query)
        assert (answer.status_code, message in answer.text) == (status, True), answer.text
    assert ready.client.get(BATCHES).json()["items"] == []
    assert {path for path in (tmp_path / "blobs").rglob("*") if path.is_file()} == before


def parts(content: bytes, **header: Any) -> Any:
    header = {"model": "digits", "content_type": "application/x-npz", **header}
    yield pb.CreateBatchRequest(header=pb.BatchHeader(**header))
    for start in range(0, len(content), 100):
        yield pb.CreateBatchRequest(chunk=content[start : start + 100])


def test_batches_over_grpc(ready: Service, rpc: Rpc) -> None:
    job = rpc.batches.create_batch(parts(write_npz(rows(), None), format=pb.BATCH_FORMAT_NPZ))
    get = pb.GetBatchRequest(model="digits", id=job.id)
    assert rpc.batches.get_batch(get).state == pb.JOB_STATE_QUEUED
    refused(grpc.StatusCode.NOT_FOUND, rpc.batches.get_batch_content, get)
    ready.work()
    batch = rpc.batches.get_batch(get)
    assert (batch.state, batch.rows, batch.version) == (pb.JOB_STATE_SUCCEEDED, 40, 1)
    content = b"".join(chunk.data for chunk in rpc.batches.get_batch_content(get))
    assert content == ready.client.get(f"{BATCHES}/{job.id}/content").content
    second = rpc.batches.create_batch(parts(b"", dataset="validation", version="champion"))
    listed = rpc.batches.list_batches(pb.ListBatchesRequest(model="digits")).items
    assert [item.id for item in listed] == [second.id, job.id]
    assert json.loads(ready.client.get(f"{BATCHES}/{second.id}").text)["dataset"] == "validation"
    delete = pb.DeleteBatchRequest(model="digits", id=second.id)
    refused(grpc.StatusCode.FAILED_PRECONDITION, rpc.batches.delete_batch, delete)
    delete.force = True
    assert rpc.batches.delete_batch(delete).HasField("erased_after")
    listed = rpc.batches.list_batches(pb.ListBatchesRequest(model="digits")).items
    assert [item.id for item in listed] == [job.id]
    error = refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        rpc.batches.create_batch,
        parts(b"x", dataset="validation"),
    )
    assert "chunk" in violations(error)
    no_header = iter([pb.CreateBatchRequest(chunk=b"x")])
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.batches.create_batch, no_header)
    assert "header" in violations(error)
