"""Data sets by reference: registered, used by every kind of job, and refused when they change."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import anyio
import grpc
import numpy as np
import pytest

from recalib.errors import LimitedError
from recalib.registry.backup import backup
from recalib.registry.purge import purge
from recalib.settings import Settings
from service.datasets import handlers
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.reader_pool import ReaderPool, reader_pool
from tests.files.examples import write_csv, write_npz, write_parquet
from tests.service.conftest import Service, npz
from tests.service.stubs import Rpc, refused

pytestmark = pytest.mark.sqlite_only
_PATH = "/v1/models/digits/datasets"


@pytest.fixture
def folder(tmp_path: Path, data: Any) -> Path:
    """The 600 rows in two Hive partitions of different formats and dtypes."""
    folder = tmp_path / "data"
    for day in (1, 2):
        (folder / f"day={day}").mkdir(parents=True)
    logits, labels = data
    half = logits[:200].astype(np.float32), labels[:200]
    (folder / "day=1" / "a.parquet").write_bytes(write_parquet(*half))
    (folder / "day=2" / "b.npz").write_bytes(write_npz(logits[200:], labels[200:]))
    return folder


@pytest.fixture
def settings(settings: Settings, folder: Path) -> Settings:
    """Settings with one root."""
    return settings.model_copy(update={"dataset_roots": folder.as_uri()})


@pytest.fixture
def refer(ready: Service, folder: Path) -> Callable[..., Any]:
    """Return a function that registers a path of the folder as a data set."""

    def refer(name: str, path: str = "", digest: str | None = None, **query: str) -> Any:
        body = {"uri": f"{folder.as_uri()}/{path}"} | ({"digest": digest} if digest else {})
        return ready.client.put(f"{_PATH}/{name}", json=body, params=query)

    return refer


def _job(service: Service, answer: Any) -> dict[str, Any]:
    """Run the job that a request made; return it."""
    assert answer.status_code == 202, answer.text
    service.work()
    job: dict[str, Any] = service.client.get(f"/v1/jobs/{answer.json()['id']}").json()
    return job


def test_reference_is_a_data_set(ready: Service, refer: Any, folder: Path, data: Any) -> None:
    answer = refer("whole")
    assert answer.status_code == 201, answer.text
    dataset = answer.json()
    assert dataset["uri"] == f"{folder.as_uri()}/"
    assert (dataset["rows"], dataset["classes"]) == (600, 4)
    assert dataset["size_bytes"] == sum(path.stat().st_size for path in folder.rglob("*.*"))
    assert dataset["media_type"] == "application/vnd.recalib.manifest+json"
    uploaded = ready.client.get(f"{_PATH}/validation").json()
    assert uploaded["uri"] is None
    for name, metric in uploaded["metrics"].items():
        assert dataset["metrics"][name]["value"] == pytest.approx(metric["value"], rel=1e-4)
    # The same request again; a name of other data; the list; the audit trail.
    assert refer("whole").status_code == 200
    assert refer("whole", "day=1/").status_code == 409
    assert refer("validation").status_code == 409
    names = {item["name"]: item["uri"] for item in ready.client.get(_PATH).json()["items"]}
    assert names == {"validation": None, "whole": dataset["uri"]}
    with ready.registry.reading() as tx:
        details = [
            entry.detail for entry in tx.audit.page(None, 100) if entry.action == "upload_dataset"
        ]
    assert f"at {dataset['uri']}" in details[0]
    patched = ready.client.patch(f"{_PATH}/whole", json={"description": "of May"}).json()
    assert (patched["description"], patched["uri"]) == ("of May", dataset["uri"])
    # The server does not pass files on.
    refused = ready.client.get(f"{_PATH}/whole/content")
    assert refused.status_code == 409
    assert dataset["uri"] in refused.json()["detail"]
    # Segments are columns of an upload.
    request = {"dataset": "whole", "versions": ["identity"], "segments": ["site"]}
    refused = ready.client.post("/v1/models/digits/evaluations", json=request)
    assert refused.status_code == 422
    assert f"segments: found data at {dataset['uri']}" in refused.json()["detail"]


def test_glob_and_single_file_with_a_digest(refer: Any, folder: Path) -> None:
    first = (folder / "day=1" / "a.parquet").read_bytes()
    digest = hashlib.sha256(first).hexdigest()
    assert refer("one", "day=1/a.parquet", digest).json()["rows"] == 200
    assert refer("glob", "day=*/*.npz").json()["rows"] == 400
    refused = refer("other", "day=2/b.npz", digest)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "digest"
    # Of several files: what sha256sum prints in the folder.
    second = hashlib.sha256((folder / "day=2" / "b.npz").read_bytes()).hexdigest()
    text = f"{digest}  day=1/a.parquet\n{second}  day=2/b.npz\n"
    assert refer("all", "", hashlib.sha256(text.encode()).hexdigest()).status_code == 201


def test_files_without_rows_are_left_out(ready: Service, refer: Any, folder: Path) -> None:
    empty = folder / "day=0"
    empty.mkdir()
    contents = {"a.parquet": write_parquet, "b.npz": write_npz}
    for name, write in contents.items():
        (empty / name).write_bytes(write(np.zeros((0, 4)), np.zeros(0, int)))
    files = sorted(path for path in folder.rglob("*.*") if path.is_file())
    lines = (
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in files
    )
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    answer = refer("all", "", digest)
    assert (answer.status_code, answer.json()["rows"]) == (201, 600)
    job = _job(ready, ready.ask_fit(dataset="all", promote=False))
    assert job["state"] == "succeeded", job["error"]
    refused = refer("none", "day=0/")
    assert refused.status_code == 422
    assert "uri: found no rows at" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"uri": "file:///etc/"}, "uri"),
        ({"uri": "http://169.254.169.254/latest/meta-data/"}, "uri"),
        ({"uri": "s3://bucket/x?endpoint_override=http://169.254.169.254"}, "uri"),
        ({"uri": 7}, "uri"),
        ({"uri": "file:///data", "digest": "7"}, "digest"),
        ({"uri": "file:///data", "logits": [[1, 2]], "labels": [1]}, "logits"),
    ],
)
def test_wrong_reference_is_refused(ready: Service, body: Any, field: str) -> None:
    answer = ready.client.put(f"{_PATH}/d", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


@pytest.mark.parametrize("body", [b'{"uri":"\xff"}', b'{"uri":1e999}'])
def test_invalid_json_is_refused(ready: Service, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = ready.client.put(f"{_PATH}/d", content=body, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body")


def test_files_are_checked_as_uploads_are(refer: Any, folder: Path, data: Any) -> None:
    logits, labels = data[0].copy(), data[1]
    logits[3, 1] = np.nan
    files = {
        "nan": (write_npz(logits, labels), r"bad/a.npz: logits[3][1]: found NaN"),
        "classes": (write_npz(logits[:, :3], labels % 3), "3 classes"),
        "labels": (write_npz(data[0], None), "labels"),
        "damaged": (b"PK\x03\x04", "cannot be read as npz"),
    }
    (folder / "bad").mkdir()
    for name, (content, message) in files.items():
        (folder / "bad" / "a.npz").write_bytes(content)
        answer = refer(name, "bad/")
        assert answer.status_code == 422
        assert message in answer.json()["detail"], name
    (folder / "bad" / "a.npz").unlink()
    assert "nothing at" in refer("none", "bad/").json()["detail"]


def test_json_data_is_still_an_upload(ready: Service) -> None:
    for rows in (2, 5_000):  # shorter and longer than a reference may be
        body = {"logits": rows * [[0.5, 1.5, 2.5, 3.5]], "labels": rows * [3]}
        answer = ready.client.put(f"{_PATH}/json-{rows}", json=body)
        assert (answer.status_code, answer.json()["rows"]) == (201, rows)
    answer = ready.client.put(
        f"{_PATH}/bad", content=b"{", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 422
    assert "truncated" in answer.json()["detail"]


@pytest.mark.slow
def test_jobs_read_the_files(ready: Service, refer: Any, data: Any) -> None:
    """The results are those of the same rows in one upload."""
    assert refer("whole").status_code == 201
    rounded = data[0].copy()
    rounded[:200] = rounded[:200].astype(np.float32)
    assert ready.upload(npz(rounded, data[1]), "same").status_code == 201
    versions = []
    for name in ("same", "whole"):
        job = _job(ready, ready.ask_fit(dataset=name, map="vector", promote=False))
        assert job["state"] == "succeeded", job["error"]
        versions.append(
            ready.client.get(f"/v1/models/digits/calibrators/{job['result']['version']}")
        )
    same, complete = (version.json() for version in versions)
    assert complete["dataset"] == "whole"
    for stage, metrics in same["card"]["metrics"].items():
        assert complete["card"]["metrics"][stage] == metrics
    assert complete["card"]["selection"]["better"] == same["card"]["selection"]["better"]
    # Digests recognise the rows of the champion.
    body = {"dataset": "whole", "versions": [1, 2, 3]}
    job = _job(ready, ready.client.post("/v1/models/digits/evaluations", json=body))
    assert job["state"] == "succeeded", job["error"]
    assert [result["fitted_rows"] for result in job["result"]["results"]] == [600, 600, 600]
    contents = []
    for name in ("same", "whole"):
        body = {"dataset": name, "format": "npz"}
        job = _job(ready, ready.client.post("/v1/models/digits/batches", json=body))
        assert job["state"] == "succeeded", job["error"]
        url = f"/v1/models/digits/batches/{job['id']}/content"
        contents.append(ready.client.get(url).content)
    assert contents[0] == contents[1]


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _replace(path: Path) -> None:
    """Other bytes of the same length and time."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _link_outside(path: Path) -> None:
    target = path.parents[2] / "outside.npz"
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            _append,
            "has changed since the data set was registered: it has",
            marks=pytest.mark.slow,
        ),
        (_replace, "has changed since the data set was registered: its SHA-256 is"),
        pytest.param(Path.unlink, "does not exist any more", marks=pytest.mark.slow),
        pytest.param(_link_outside, "a link to another place", marks=pytest.mark.slow),
    ],
)
def test_changed_file_fails_the_jobs(
    ready: Service, refer: Any, folder: Path, change: Callable[[Path], Any], message: str
) -> None:
    assert refer("whole").status_code == 201
    change(folder / "day=2" / "b.npz")
    model = "/v1/models/digits"
    for answer in (
        ready.ask_fit(dataset="whole"),
        ready.client.post(f"{model}/batches", json={"dataset": "whole"}),
        ready.client.post(f"{model}/evaluations", json={"dataset": "whole", "versions": [1]}),
    ):
        job = _job(ready, answer)
        assert job["state"] == "failed"
        assert "day=2/b.npz" in job["error"]
        assert message in job["error"]
    # A registration notices the change.
    assert refer("whole").status_code in (409, 422)


@pytest.mark.slow
def test_later_files_do_not_belong_to_the_data_set(
    ready: Service, refer: Any, folder: Path
) -> None:
    assert refer("whole").status_code == 201
    (folder / "day=2" / "c.npz").write_bytes(b"incomplete")
    job = _job(ready, ready.ask_fit(dataset="whole"))
    assert job["state"] == "succeeded", job["error"]


@pytest.mark.slow
def test_large_reference_has_its_headers_checked_only(
    ready: Service, refer: Any, folder: Path, data: Any
) -> None:
    """Larger than an upload may be: 1 MB here."""
    logits, labels = (np.tile(part, (60, 1) if part.ndim == 2 else 60) for part in data)
    logits[5, 1] = np.nan
    (folder / "large").mkdir()
    (folder / "large" / "a.npz").write_bytes(write_npz(logits, labels))
    answer = refer("large", "large/")
    assert answer.status_code == 201, answer.text
    assert (answer.json()["rows"], answer.json()["metrics"]) == (36_000, {})
    refused = refer("digested", "large/", 64 * "0")
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (413, "uri")
    # The rows are checked when they are read: in parts, or not at all where all are in memory.
    job = _job(ready, ready.ask_fit(dataset="large"))
    assert "logits[5][1]: found NaN" in job["error"]
    options = {"variant": "label_binned", "order": 1}
    job = _job(ready, ready.ask_fit(dataset="large", objective="sb_ece", options=options))
    assert "RECALIB_MAX_UPLOAD_BYTES" in job["error"]
    (folder / "large" / "a.npz").unlink()
    (folder / "large" / "a.csv").write_bytes(write_csv(logits[6:], labels[6:]))
    assert "has no number of rows" in refer("csv", "large/").json()["detail"]


def test_deletion_leaves_the_files(
    ready: Service, refer: Any, folder: Path, tmp_path: Path
) -> None:
    assert refer("whole").status_code == 201
    assert backup(ready.registry, tmp_path / "1.zip").references == [f"{folder.as_uri()}/"]
    with ready.registry.reading() as tx:
        digest = tx.datasets.get(tx.models.get("digits"), "whole").digest
    assert ready.registry.blobs.exists(digest)
    assert ready.client.delete(f"{_PATH}/whole").status_code == 200
    assert backup(ready.registry, tmp_path / "2.zip").references == []
    purge(ready.registry, -60)
    assert not ready.registry.blobs.exists(digest)
    assert len(list(folder.rglob("*.*"))) == 2


def test_grpc_header_refers_to_files(
    ready: Service, rpc: Rpc, refer: Callable[..., Any], folder: Path
) -> None:
    uri = f"{folder.as_uri()}/"
    header = {"model": "digits", "name": "whole", "uri": uri}
    ask = rpc.datasets.upload_dataset
    message = pb.UploadDatasetRequest(header=pb.UploadHeader(**header))
    answer = ask(iter([message]))
    assert (answer.created, answer.dataset.rows, answer.dataset.uri) == (True, 600, uri)
    assert refer("whole").status_code == 200
    chunk = pb.UploadDatasetRequest(chunk=b"bytes")
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, ask, iter([message, chunk]))
    assert "both a URI and bytes" in error.details()
    wrong = pb.UploadHeader(**{**header, "digest": 64 * "0"})
    refused(grpc.StatusCode.INVALID_ARGUMENT, ask, iter([pb.UploadDatasetRequest(header=wrong)]))
    request = pb.GetDatasetRequest(model="digits", name="whole")
    for fields in ({"uri": uri, "content_type": "text/csv"}, {"digest": 64 * "0"}):
        mixed = pb.UploadHeader(model="digits", name="mixed", **fields)
        ask_mixed = iter([pb.UploadDatasetRequest(header=mixed)])
        error = refused(grpc.StatusCode.INVALID_ARGUMENT, ask, ask_mixed)
        assert f"header.{list(fields)[-1]}: found" in error.details()
    content = rpc.datasets.get_dataset_content
    error = refused(grpc.StatusCode.FAILED_PRECONDITION, lambda item: list(content(item)), request)
    assert uri in error.details()


def test_reference_that_takes_too_long_names_its_field(
    refer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert refer("quick").status_code == 201
    (pid,) = reader_pool("references").pids
    os.kill(pid, signal.SIGSTOP)  # as if its files were endless
    monkeypatch.setattr(handlers, "_LIST_SECONDS", 0.01)
    answer = refer("slow")
    assert answer.status_code == 422
    (violation,) = answer.json()["errors"]
    assert violation["field"] == "uri"
    assert violation["found"] == "a data set that takes more than 0.01 s to read"


def test_uploads_do_not_wait_for_references() -> None:
    assert reader_pool("references") is not reader_pool()


def test_calls_beyond_the_limit_are_refused_at_once() -> None:
    """A few references of a caller wait; others get 429."""
    reader = ReaderPool(max_calls=2)

    async def run() -> None:
        block = partial(reader.run, wait, seconds=60.0, object_list=[], timeout=60.0)
        async with anyio.create_task_group() as group:
            group.start_soon(block)
            group.start_soon(block)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(LimitedError, match="2 files of 'anonymous'"):
                await block()
            group.cancel_scope.cancel()
        # The calls that were cancelled do not count.
        assert await reader.run(wait, seconds=60.0, object_list=[], timeout=0.0) == []

    try:
        anyio.run(run)
    finally:
        reader.close()
