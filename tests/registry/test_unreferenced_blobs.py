"""No blob stays without a row that refers to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from recalib.errors import ExistsError, InputError, UnavailableError
from recalib.registry import Capture, Model, Registry, Transaction, tables
from recalib.registry.job_kinds import TRAIN

_DATA = b"logits and labels"


@pytest.fixture
def model(registry: Registry) -> Model:
    with registry.transaction() as tx:
        return tx.models.create("digits", None, 4, "anna")


def _upload(registry: Registry, model: Model, name: str, data: bytes = _DATA) -> str:
    with registry.blobs.writer() as blob:
        blob.write(data)
        with registry.storing(blob) as (tx, digest):
            _create(tx, model, name, digest)
            return digest


def _create(tx: Transaction, model: Model, name: str, digest: str) -> None:
    tx.datasets.create(model, name, digest, 1, 4, 9, "application/x-npz", "logits", {})


def _files(registry: Registry) -> list[str]:
    folder = Path(registry.blobs.root)
    return sorted(path.name for path in folder.glob("*/*"))


def _leave_marker(registry: Registry, digest: str) -> None:
    """Leave what a writer leaves that is killed after its commit."""
    Path(registry.blobs.temporary_path() + f".{digest}").write_bytes(b"")


def test_stored_blob_has_no_temporary_file(registry: Registry, model: Model) -> None:
    digest = _upload(registry, model, "first")
    assert _files(registry) == [digest]


def test_refused_upload_leaves_no_blob(registry: Registry, model: Model) -> None:
    """Its name exists; but a blob that another row refers to stays."""
    digest = _upload(registry, model, "first")
    for data in (b"other", _DATA):
        with pytest.raises(ExistsError):
            _upload(registry, model, "first", data)
    assert _files(registry) == [digest]
    registry.blobs.verify(digest)


def test_refused_upload_keeps_the_blob_of_another_registry(
    registry: Registry, model: Model
) -> None:
    """Registries may share a bucket; the bytes were there before this upload."""
    _upload(registry, model, "first", b"other")
    with registry.blobs.writer() as blob:  # no row of this registry refers to it
        blob.write(_DATA)
        digest = blob.commit()
    with pytest.raises(ExistsError):
        _upload(registry, model, "first", _DATA)
    assert registry.sweep(older_than_seconds=-60) == 0
    registry.blobs.verify(digest)


def test_blob_removed_during_an_upload_is_noticed(
    registry: Registry, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another upload of the same bytes that fails."""
    with registry.blobs.writer() as blob:
        blob.write(_DATA)
        blob.commit()
        monkeypatch.setattr(blob, "commit", lambda: registry.blobs.remove(blob.digest))
        with pytest.raises(UnavailableError, match="removed meanwhile"), registry.storing(blob):
            pass
    assert _files(registry) == []


def test_blobs_that_are_stored_together_are_all_removed_after_a_failure(
    registry: Registry, model: Model
) -> None:
    """But those stay that were there before, or that another row refers to."""
    digest = _upload(registry, model, "first")
    with registry.blobs.writer() as first, registry.blobs.writer() as second:
        first.write(_DATA)
        second.write(b"other")
        with pytest.raises(ExistsError), registry.storing_all([first, second]) as tx:
            _create(tx, model, "first", second.digest)
    assert _files(registry) == [digest]
    assert registry.sweep(older_than_seconds=-60) == 0


def test_sweep_removes_unreferenced_blobs_of_killed_writers(
    registry: Registry, model: Model
) -> None:
    """And nothing else: blobs without a marker may belong to another registry."""
    orphan, referenced, other = (_upload(registry, model, name, name.encode()) for name in "abc")
    with registry.transaction() as tx:
        rows = tables.datasets
        tx.connection.execute(delete(rows).where(rows.c.digest.in_([orphan, other])))
    _leave_marker(registry, orphan)
    _leave_marker(registry, referenced)
    assert registry.sweep() == 0
    assert registry.sweep(older_than_seconds=-60) == 2
    assert _files(registry) == sorted([referenced, other])


@pytest.mark.parametrize("table", ["captures", "checkpoint", "result"])
def test_sweep_keeps_blobs_of_captures_and_training_jobs(
    registry: Registry, model: Model, table: str
) -> None:
    with registry.blobs.writer() as blob:
        blob.write(_DATA)
        digest = blob.commit()
    with registry.transaction() as tx:
        _refer(tx, model, table, digest)
    _leave_marker(registry, digest)
    assert registry.sweep(older_than_seconds=-60) == 1
    assert _files(registry) == [digest]


def _refer(tx: Transaction, model: Model, table: str, digest: str) -> None:
    if table == "captures":
        tx.captures.add(model.id, Capture(digest, 1, 9, 0.0, 1.0))
        return
    tx.jobs.enqueue(TRAIN, {}, model=model)
    lease = tx.jobs.claim("test", [TRAIN], 60)
    assert lease is not None
    if table == "checkpoint":
        tx.jobs.checkpoint(lease, {"digest": digest, "others": []})
    else:
        tx.jobs.succeed(lease, {"files": {"weights": {"digest": digest}}})


def test_blob_stays_for_the_sweep_if_the_database_is_away(
    registry: Registry, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its removal needs the database."""

    def fail(*_: Any) -> None:
        raise UnavailableError("the database cannot be used")

    with monkeypatch.context() as patch:
        patch.setattr(registry, "transaction", fail)
        with pytest.raises(UnavailableError, match="database"):
            _upload(registry, model, "first")
    assert len(_files(registry)) == 2
    assert registry.sweep(older_than_seconds=-60) == 1
    assert _files(registry) == []


def test_invalid_digest_is_rejected(registry: Registry) -> None:
    with pytest.raises(InputError, match="digest"):
        registry.blobs.exists("../etc")
