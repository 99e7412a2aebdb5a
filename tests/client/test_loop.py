"""All client operations, against a real server and worker."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import recalib
from recalib.client import JobFailedError, ResourceConflictError, ResourceNotFoundError
from recalib.errors import InputError, NotFoundError
from tests.client.either import Either, asyncio_is_slow
from tests.end_to_end.programs import Programs, Server
from tests.fitting.conftest import draw
from tests.service.conftest import npz

LOGITS, LABELS = draw(600, 4, 3.0)
ROWS = LOGITS[:40].astype(np.float32)


def fit_twice(client: Either, name: str) -> str:
    """Make a model with versions 1 (identity) and 2 (temperature), the second its champion."""
    client.create_model(name, 4)
    client.upload_dataset(name, "val", LOGITS, LABELS, progress=False)
    for map, promote in (("identity", False), ("temperature", True)):
        client.wait(client.fit(name, "val", map=map, promote=promote), progress=False)
    return name


@pytest.fixture
def fitted(client: Either, name: str) -> str:
    """A model of `fit_twice`, which the test may change."""
    return fit_twice(client, name)


@pytest.fixture(scope="module")
def unchanged(server: Server) -> str:
    """A model of `fit_twice`, which all tests share."""
    with Either("blocking", server.url) as client:
        return fit_twice(client, "unchanged")


@asyncio_is_slow
def test_from_data_to_probabilities(client: Either, name: str, tmp_path: Path) -> None:
    """The server's probabilities equal those of the downloaded files."""
    model = client.create_model(name, ["a", "b", "c", "d"])
    assert (model.name, model.classes, model.labels) == (name, 4, ("a", "b", "c", "d"))

    content = npz(LOGITS, LABELS)
    (tmp_path / "val.npz").write_bytes(content)
    fractions: list[float] = []
    dataset = client.upload_dataset(
        name,
        "val",
        tmp_path / "val.npz",
        progress=lambda share, text: fractions.append(share),
    )
    assert dataset.digest == hashlib.sha256(content).hexdigest()
    assert (dataset.rows, dataset.size_bytes, dataset.input) == (600, len(content), "logits")
    assert dataset.metrics["accuracy"].value == np.mean(LOGITS.argmax(1) == LABELS)
    assert fractions[-1] == 1
    assert fractions == sorted(fractions)

    job = client.fit(name, "val", map="vector", promote=True)
    assert (job.kind, job.model, job.finished) == ("fit", name, False)
    messages: list[tuple[float, str]] = []
    result = client.wait(job, progress=lambda fraction, text: messages.append((fraction, text)))
    assert (result.state, result.error) == ("succeeded", None)
    assert result.result["version"] == 1
    assert messages[-1] == (1, "succeeded")
    assert result.started_at < result.finished_at
    assert client.get_calibrator(name).card["map"] == "vector"

    probabilities = client.calibrate(name, ROWS)
    assert probabilities.dtype == np.float32
    for file in ("c.calib", "c.onnx"):
        assert client.download_calibrator(name, tmp_path / file) == 1
    local = recalib.load(tmp_path / "c.calib").predict(ROWS)
    np.testing.assert_allclose(probabilities, local, atol=1e-6)
    graph = onnxruntime.InferenceSession(tmp_path / "c.onnx").run(None, {"logits": ROWS})[0]
    np.testing.assert_allclose(probabilities, graph, atol=1e-6)


@asyncio_is_slow
def test_versions_and_aliases(client: Either, fitted: str) -> None:
    """An alias is moved, read, and rolled back."""
    identity = client.calibrate(fitted, ROWS, calibrator=1)
    champion = client.calibrate(fitted, ROWS)
    assert np.abs(identity - champion).max() > 0.01
    np.testing.assert_array_equal(client.calibrate(fitted, ROWS, calibrator="2"), champion)

    promoted = client.promote(fitted, 1, reason="to see")
    assert (promoted.alias, promoted.version) == ("champion", 1)
    np.testing.assert_array_equal(client.calibrate(fitted, ROWS), identity)
    assert client.rollback(fitted).version == 2
    np.testing.assert_array_equal(client.calibrate(fitted, ROWS), champion)
    assert client.rollback(fitted).version == 1  # a second rollback undoes the first

    client.promote(fitted, 2, alias="next")
    assert {alias.alias: alias.version for alias in client.list_aliases(fitted)} == {
        "champion": 1,
        "next": 2,
    }
    history = client.alias_history(fitted)
    assert [entry.to_version for entry in history] == [1, 2, 1, 2]
    assert (history[2].reason, history[2].from_version) == ("to see", 2)
    assert len(client.alias_history(fitted, limit=1)) == 1
    assert client.get_calibrator(fitted, "next").version == 2
    assert [calibrator.card["map"] for calibrator in client.list_calibrators(fitted)] == [
        "identity",
        "temperature",
    ]
    with pytest.raises(NotFoundError, match="an earlier version of alias 'next'"):
        client.rollback(fitted, alias="next")
    with pytest.raises(NotFoundError, match=r"'nobody' does not exist; .* has 'champion', 'next'"):
        client.get_calibrator(fitted, "nobody")


def test_lists_read_all_pages(client: Either, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recalib.client.drivers.PAGE_SIZE", 2)
    names = [f"{name}-{number}" for number in range(5)]
    for model in names:
        client.create_model(model, 2)
    assert [model.name for model in client.list_models() if model.name.startswith(name)] == names
    for part in ("c", "a", "b"):
        client.upload_dataset(names[0], part, LOGITS[:10, :2], LABELS[:10] % 2, progress=False)
    assert [dataset.name for dataset in client.list_datasets(names[0])] == ["a", "b", "c"]
    assert list(client.list_datasets(names[1])) == []
    assert client.get_dataset(names[0], "a").rows == 10


def test_existing_model_is_returned_with_exist_ok(client: Either, name: str) -> None:
    """`exist_ok` returns it unless it differs from the request."""
    first = client.create_model(name, 3)
    with pytest.raises(ResourceConflictError, match="already exists"):
        client.create_model(name, 3)
    assert client.create_model(name, np.int64(3), exist_ok=True) == first == client.get_model(name)
    with pytest.raises(ResourceConflictError):
        client.create_model(name, 4, exist_ok=True)
    with pytest.raises(ResourceConflictError):
        client.create_model(name, ["a", "b", "c"], exist_ok=True)
    with pytest.raises(InputError, match="classes: found 'abc'"):
        client.create_model(name, "abc")
    labels = client.create_model(f"{name}-2", ("a", "b", "c"))
    assert client.create_model(f"{name}-2", ["a", "b", "c"], exist_ok=True) == labels
    with pytest.raises(ResourceConflictError):
        client.create_model(f"{name}-2", 3, exist_ok=True)


@asyncio_is_slow
def test_jobs(client: Either, unchanged: str) -> None:
    """Jobs can be listed by model and state; finished jobs cannot be cancelled."""
    second, first = client.list_jobs(model=unchanged)
    assert first.created_at <= second.created_at
    assert list(client.list_jobs(model=unchanged, state="failed")) == []
    assert client.cancel_job(first) == first == client.get_job(first.id)
    with pytest.raises(ResourceNotFoundError, match="job 'nobody' does not exist") as excinfo:
        client.wait("nobody")
    assert not hasattr(excinfo.value, "__notes__")


def test_failed_job_raises_its_error(client: Either, name: str, shared_programs: Programs) -> None:
    """The exception has the job's error and the job."""
    client.create_model(name, 4)
    # Unique content, since equal data sets share a blob.
    own = np.random.default_rng(int(name[-8:], 16)).normal(size=LOGITS.shape)
    digest = client.upload_dataset(name, "val", own, LABELS, progress=False).digest
    (blob,) = (path for path in shared_programs.home.rglob(f"*{digest}*") if path.is_file())
    blob.unlink()
    with pytest.raises(JobFailedError, match=digest[:8]) as excinfo:
        client.wait(client.fit(name, "val"), progress=False)
    job = excinfo.value.job
    assert (job.state, job.model) == ("failed", name)
    assert str(excinfo.value) == f"job {job.id} failed: {job.error}"


def test_ready(client: Either) -> None:
    result = client.ready()
    assert (result.ready, result.registry, result.detail) == (True, "reachable", "")


def test_download_to_an_invalid_path_is_rejected(
    client: Either, unchanged: str, tmp_path: Path
) -> None:
    """No file is left; an unknown suffix is rejected before any request."""
    for destination in ("c.npz", "c", "nowhere/c.calib"):
        with pytest.raises(InputError):
            client.download_calibrator(unchanged, tmp_path / destination)
    with pytest.raises(InputError, match=r"ends in \.calib or \.onnx"):
        client.download_calibrator("nobody", tmp_path / "c.npz")
    assert list(tmp_path.iterdir()) == []
