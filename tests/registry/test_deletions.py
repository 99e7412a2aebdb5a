"""Deletion: hidden at once, erased later, and refused while something uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from recalib.core.prediction_ids import Prediction
from recalib.errors import ConflictError, FencedError, NotFoundError
from recalib.registry import (
    Capture,
    Challenger,
    Model,
    MonitorRow,
    Registry,
    TrafficCount,
    Transaction,
    tables,
)
from recalib.registry.backup import backup
from recalib.registry.job_kinds import TRAIN
from recalib.registry.purge import purge
from recalib.registry.restore import restore
from recalib.registry.tables import METADATA
from tests.registry.scenes import KIND, a_model, a_version, claimed

#: Everything that was deleted is old enough.
_NOW = -60.0


def _enqueue(tx: Transaction, model: Model, dataset: str = "validation") -> str:
    return tx.jobs.enqueue(KIND, {"model": model.name, "dataset": dataset}, model=model).id


def _upload(registry: Registry, model: Model, name: str, data: bytes) -> str:
    with registry.blobs.writer() as blob:
        blob.write(data)
        with registry.storing(blob) as (tx, digest):
            tx.models.hold(model)
            tx.datasets.create(model, name, digest, 1, 2, 9, "application/x-npz", "logits", {})
            return digest


def _files(registry: Registry) -> list[str]:
    return sorted(path.name for path in Path(registry.blobs.root).glob("*/*"))


def _count(registry: Registry, table: Any, **values: Any) -> int:
    with registry.reading() as tx:
        where = [table.c[name] == value for name, value in values.items()]
        return int(tx.connection.scalar(select(func.count()).select_from(table).where(*where)) or 0)


def test_deleted_model_is_hidden_and_its_name_is_free(registry: Registry) -> None:
    """Its jobs are hidden too; the audit trail keeps its entries, and has the deletion."""
    model = a_model(registry)
    a_version(registry, model)
    with registry.transaction() as tx:
        job = _enqueue(tx, model)
        tx.jobs.cancel(job)
    with registry.transaction() as tx:
        tx.deletions.model(model, "anna")
    with registry.transaction() as tx:
        assert tx.models.page(None, 10) == []
        for missing in (
            lambda: tx.models.get("resnet"),
            lambda: tx.calibrators.serving("resnet", 1),
            lambda: tx.jobs.get(job),
            lambda: tx.deletions.model(model, "anna"),
            lambda: tx.aliases.set(model, "champion", 1, "anna", ""),
        ):
            with pytest.raises(NotFoundError):
                missing()
        assert tx.jobs.page(None, "cancelled", None, 10) == []
        entry = tx.audit.page(None, 1)[0]
        assert (entry.actor, entry.action, entry.model) == ("anna", "delete_model", "resnet")
        other = tx.models.create("resnet", None, 3, "ben")
        assert tx.datasets.page(other, None, 10) == []
    with registry.transaction() as tx:
        tx.deletions.model(other, "ben")  # the second model of that name


def test_model_in_use_is_not_deleted(registry: Registry) -> None:
    """The error names the user and what to do; `force` cancels jobs and deletes the champion."""
    model = a_model(registry)
    with registry.transaction() as tx:
        job = _enqueue(tx, model)
    with registry.transaction() as tx, pytest.raises(ConflictError, match=rf"{job}.*queued.*force"):
        tx.deletions.model(model, "anna")
    running = claimed(registry)
    with registry.transaction() as tx, pytest.raises(ConflictError, match="running"):
        tx.deletions.model(model, "anna")
    with registry.transaction() as tx:
        version = tx.calibrators.publish(running, model, None, {}, b"1", "champion", "")
        tx.jobs.succeed(running, {})
    with registry.transaction() as tx, pytest.raises(ConflictError, match=f"version {version}"):
        tx.deletions.model(model, "anna")
    with registry.transaction() as tx:
        job = _enqueue(tx, model)
    with registry.transaction() as tx:
        tx.deletions.model(model, "anna", force=True)
    assert _count(registry, tables.aliases) == 0
    assert _count(registry, tables.jobs, id=job, state="cancelled") == 1
    with registry.reading() as tx:
        assert {"cancel_job", "delete_model"} <= {entry.action for entry in tx.audit.page(None, 9)}


def test_job_does_not_publish_into_a_deleted_model(registry: Registry) -> None:
    """Even one that never looks whether it was cancelled; nor into a model of the same name."""
    model = a_model(registry)
    with registry.transaction() as tx:
        _enqueue(tx, model)
    lease = claimed(registry)
    with registry.transaction() as tx:
        tx.deletions.model(model, "anna", force=True)
    a_model(registry)
    with registry.transaction() as tx:
        assert tx.jobs.heartbeat(lease, 60)
    with pytest.raises(NotFoundError, match="resnet"), registry.transaction() as tx:
        tx.calibrators.publish(lease, model, "validation", {}, b"1", "champion", "")
    assert _count(registry, tables.calibrators) == 0
    with registry.transaction() as tx:
        tx.jobs.acknowledge_cancel(lease)


def test_digests_of_deleted_rows_are_not_recorded_of_other_data(registry: Registry) -> None:
    """A job reads a data set that is deleted meanwhile, and its name is given to other data."""
    model = a_model(registry)
    with registry.transaction() as tx:
        dataset = tx.datasets.get(model, "validation")
        tx.deletions.dataset(model, "validation", "anna")
    _upload(registry, model, "validation", b"other")
    with registry.transaction() as tx:
        tx.datasets.set_row_digests(model, dataset, b"12345678")
    a_version(registry, model)
    with registry.reading() as tx:
        assert tx.calibrators.row_digests(model, 1) is None


def test_deleted_dataset_keeps_its_versions(registry: Registry) -> None:
    """Its name is free; the digests of its rows stay with the versions after it is erased."""
    model = a_model(registry)
    with registry.transaction() as tx:
        tx.datasets.set_row_digests(model, tx.datasets.get(model, "validation"), b"12345678")
    a_version(registry, model, promote="champion")
    with registry.transaction() as tx:
        tx.deletions.dataset(model, "validation", "anna")
    with registry.reading() as tx:
        assert tx.datasets.find(model, "validation") is None
        assert tx.datasets.find_digest(model, "0" * 64) is None
        assert tx.datasets.page(model, None, 10) == []
        assert tx.calibrators.get(model, 1).dataset is None
    other = _upload(registry, model, "validation", b"other")
    for _ in range(2):
        with registry.reading() as tx:
            assert tx.calibrators.row_digests(model, 1) == b"12345678"
            assert tx.datasets.get(model, "validation").digest == other
        purge(registry, _NOW)
    assert _count(registry, tables.datasets) == 1


def test_dataset_of_an_unfinished_job_is_not_deleted(registry: Registry) -> None:
    """A job on another data set does not count; `force` cancels the job."""
    model = a_model(registry)
    _upload(registry, model, "other", b"other")
    with registry.transaction() as tx:
        job = _enqueue(tx, model)
    with registry.transaction() as tx:
        tx.deletions.dataset(model, "other", "anna")
        with pytest.raises(ConflictError, match=job):
            tx.deletions.dataset(model, "validation", "anna")
        tx.deletions.dataset(model, "validation", "anna", force=True)
        assert tx.jobs.get(job).state == "cancelled"
        with pytest.raises(NotFoundError):
            tx.deletions.dataset(model, "validation", "anna")


def test_deleted_version_is_not_served_and_not_numbered_again(registry: Registry) -> None:
    """An alias or a comparison keeps it from deletion, with `force` too."""
    model = a_model(registry)
    for promote in ("champion", None, None):
        a_version(registry, model, promote=promote)
    with registry.transaction() as tx:
        tx.candidates.add(model, Challenger(2, 1, 0, 0.0, 0.0, 0.05, {}, None, None))
        with pytest.raises(ConflictError, match="served as champion"):
            tx.deletions.calibrator(model, 1, "anna", force=True)
        with pytest.raises(ConflictError, match="candidate"):
            tx.deletions.calibrator(model, 2, "anna", force=True)
        tx.deletions.calibrator(model, 3, "anna")
    with registry.transaction() as tx:
        for missing in (
            lambda: tx.calibrators.get(model, 3),
            lambda: tx.calibrators.parameters(model, 3),
            lambda: tx.aliases.set(model, "champion", 3, "anna", ""),
            lambda: tx.deletions.calibrator(model, 3, "anna"),
        ):
            with pytest.raises(NotFoundError):
                missing()
        assert tx.calibrators.serving("resnet", 3).version is None
        assert [row.version for row in tx.calibrators.page(model, None, 10)] == [1, 2]
        assert tx.calibrators.deleted(model) == {3}
    assert a_version(registry, model) == 4


def test_version_of_an_unfinished_job_is_not_deleted(registry: Registry) -> None:
    """A payload names one version, or several."""
    model = a_model(registry)
    for _ in range(2):
        a_version(registry, model)
    with registry.transaction() as tx:
        jobs = [
            tx.jobs.enqueue("test", payload, model=model).id
            for payload in ({"version": 1}, {"versions": [2]})
        ]
        for version, job in enumerate(jobs, start=1):
            with pytest.raises(ConflictError, match=job):
                tx.deletions.calibrator(model, version, "anna")
            tx.deletions.calibrator(model, version, "anna", force=True)


def test_deleted_alias_is_in_the_history(registry: Registry) -> None:
    """The champion is deleted with `force` only; its version stays."""
    model = a_model(registry)
    a_version(registry, model, promote="champion")
    with registry.transaction() as tx:
        tx.aliases.set(model, "old", 1, "anna", "")
        tx.aliases.delete(model, "old", "anna")
        with pytest.raises(ConflictError, match="force"):
            tx.aliases.delete(model, "champion", "anna")
        revision = tx.aliases.revision()
        tx.aliases.delete(model, "champion", "ben", force=True)
        with pytest.raises(NotFoundError):
            tx.aliases.delete(model, "champion", "ben", force=True)
        assert tx.aliases.all(model) == tx.aliases.changed_since(0) == []
        assert tx.aliases.buried_since(revision) == [("resnet", "champion")]
        change = tx.aliases.history(model, "champion")[0]
        assert (change.from_version, change.to_version, change.actor) == (1, None, "ben")
        tx.aliases.set(model, "champion", 1, "anna", "")


def test_deleted_run_loses_its_files(registry: Registry) -> None:
    """A version that it published stays, and with it the row of the job."""
    model = a_model(registry)
    digests = []
    for data in (b"weights", b"other"):
        with registry.blobs.writer() as blob:
            blob.write(data)
            digests.append(blob.commit())
        with registry.transaction() as tx:
            tx.jobs.enqueue(TRAIN, {}, model=model)
            lease = tx.jobs.claim("test", [TRAIN], 60)
            assert lease is not None
            with pytest.raises(ConflictError, match="running"):
                tx.deletions.run(lease.job, "anna")
            if data == b"weights":
                tx.calibrators.publish(lease, model, None, {}, b"1", None, "")
            tx.jobs.succeed(lease, {"files": {"weights": {"digest": digests[-1]}}})
            tx.deletions.run(lease.job, "anna")
            with pytest.raises(NotFoundError):
                tx.jobs.get(lease.job.id)
    assert len(_files(registry)) == 2
    assert purge(registry, _NOW) == 2
    assert _files(registry) == []
    assert _count(registry, tables.jobs) == 1
    assert purge(registry, _NOW) == 0
    with registry.reading() as tx:
        tx.calibrators.get(model, 1)


def test_purge_erases_a_model_after_the_retention_period(registry: Registry) -> None:
    """All rows and blobs, except a blob that another model uses; its id is not used again."""
    model, other = a_model(registry), a_model(registry, "other")
    digest, shared = (_upload(registry, model, data.decode(), data) for data in (b"a", b"shared"))
    _upload(registry, other, "shared", b"shared")
    a_version(registry, model, promote="champion")
    with registry.blobs.writer() as blob:
        blob.write(b"captured")
        captured = blob.commit()
    with registry.transaction() as tx:
        prediction = Prediction(model.id, 1, 1000.0, 0.5, 0.5, 0, b"d" * 16)
        tx.labels.add(model, [(prediction, 1)])
        tx.traffic.add([TrafficCount(model.id, 1, 0, 0, 0, 5)])
        tx.monitors.save(model, MonitorRow(1, 1, 1, {}, 0.0, {}, {}, {}, 0, 0.0))
        tx.monitors.record(model, 1, "fresh", "monitor", "", {})
        tx.candidates.add(model, Challenger(1, 1, 0, 0.0, 0.0, 0.05, {}, None, None))
        tx.captures.add(model.id, Capture(captured, 1, 9, 0.0, 1.0))
    with registry.transaction() as tx:
        tx.deletions.model(model, "anna", force=True)
    assert purge(registry, 3600.0) == 0
    assert _files(registry) == sorted([digest, shared, captured])
    assert purge(registry, _NOW) > 0
    assert purge(registry, _NOW) == 0
    assert _files(registry) == [shared]
    of_models = [table for table in METADATA.sorted_tables if "model_id" in table.c]
    left = {table.name: _count(registry, table, model_id=model.id) for table in of_models}
    assert {name for name, count in left.items() if count} == set()
    with registry.transaction() as tx:
        assert tx.models.create("resnet", None, 2, "anna").id > other.id


def test_blob_of_a_killed_purge_is_removed_by_the_sweep(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The purge ends between the transaction and the removal of the blob."""
    model = a_model(registry)
    _upload(registry, model, "a", b"a")
    with registry.transaction() as tx:
        tx.deletions.dataset(model, "a", "anna")

    def die(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(registry, "remove_unreferenced", die)
        with pytest.raises(SystemExit):
            purge(registry, _NOW)
    assert purge(registry, _NOW) == 0
    assert registry.sweep(older_than_seconds=-60) == 1
    assert _files(registry) == []


def _attempt(barrier: threading.Barrier, act: Callable[[], object]) -> str:
    barrier.wait()
    try:
        act()
    except (NotFoundError, ConflictError, FencedError) as error:
        return type(error).__name__
    return "done"


@pytest.mark.slow
@pytest.mark.parametrize("force", [False, True])
def test_deletion_of_a_model_races_with_everything_else(registry: Registry, force: bool) -> None:
    """Nothing is created in a deleted model, nothing is half deleted, and there is no deadlock."""
    outcomes = []
    for number in range(12):
        model = a_model(registry, f"m{number}")
        a_version(registry, model)
        with registry.transaction() as tx:
            _enqueue(tx, model)
        lease = claimed(registry)
        barrier = threading.Barrier(5)

        def delete(model: Model = model) -> None:
            with registry.transaction() as tx:
                tx.deletions.model(model, "anna", force=force)

        def fit(model: Model = model) -> None:
            with registry.transaction() as tx:
                tx.models.hold(model)
                tx.datasets.get(model, "validation")
                _enqueue(tx, model)

        def publish(model: Model = model, lease: Any = lease) -> None:
            with registry.transaction() as tx:
                tx.calibrators.publish(lease, model, "validation", {}, b"2", "champion", "")
                tx.jobs.succeed(lease, {})

        def upload(model: Model = model) -> None:
            _upload(registry, model, "uploaded", b"u%d" % model.id)

        def promote(model: Model = model) -> None:
            with registry.transaction() as tx:
                tx.aliases.set(model, "other", 1, "ben", "")

        acts = (delete, fit, publish, upload, promote)
        with ThreadPoolExecutor(5) as threads:
            result = list(threads.map(lambda act, b=barrier: _attempt(b, act), acts))
        outcomes.append(result[0])
        with registry.reading() as tx:
            connection = tx.connection
            name = connection.scalar(
                select(tables.models.c.name).where(tables.models.c.id == model.id)
            )
            unfinished = tables.jobs.c.state.in_(("queued", "running"))
            active = connection.scalar(
                select(func.count()).where(
                    tables.jobs.c.model_id == model.id,
                    unfinished,
                    tables.jobs.c.cancel_requested.is_(False),
                )
            )
        versions = _count(registry, tables.calibrators, model_id=model.id)
        assert versions == 1 + (result[2] == "done")
        if result[0] == "done":
            assert name == f"{model.id}~m{number}"
            assert active == 0
            assert _count(registry, tables.aliases, model_id=model.id) == 0
        else:
            assert name == f"m{number}"
        assert (result[3] == "done") == (_count(registry, tables.datasets, model_id=model.id) == 2)
    assert ("done" in outcomes) or not force


@pytest.mark.slow
def test_deletions_of_datasets_and_versions_race_with_their_users(registry: Registry) -> None:
    """No unfinished job uses a deleted data set, and no alias points at a deleted version."""
    model = a_model(registry)
    for number in range(1, 13):
        a_version(registry, model)
        _upload(registry, model, f"d{number}", b"%d" % number)
        barrier = threading.Barrier(4)

        def fit(name: str = f"d{number}") -> None:
            with registry.transaction() as tx:
                tx.models.hold(model)
                tx.datasets.get(model, name)
                _enqueue(tx, model, name)

        def delete_dataset(name: str = f"d{number}") -> None:
            with registry.transaction() as tx:
                tx.deletions.dataset(model, name, "anna")

        def promote(version: int = number) -> None:
            with registry.transaction() as tx:
                tx.aliases.set(model, "champion", version, "ben", "")

        def delete_version(version: int = number) -> None:
            with registry.transaction() as tx:
                tx.deletions.calibrator(model, version, "anna")

        acts = (fit, delete_dataset, promote, delete_version)
        with ThreadPoolExecutor(4) as threads:
            result = list(threads.map(lambda act, b=barrier: _attempt(b, act), acts))
        assert sorted((result[0], result[1])) in (
            ["ConflictError", "done"],
            ["NotFoundError", "done"],
        )
        assert sorted((result[2], result[3])) in (
            ["ConflictError", "done"],
            ["NotFoundError", "done"],
        )
        with registry.reading() as tx:
            champion = tx.aliases.find(model, "champion")
            assert champion is None or champion.version not in tx.calibrators.deleted(model)


def test_concurrent_deletions_have_one_winner(registry: Registry) -> None:
    """The others find no model."""
    model = a_model(registry)
    barrier = threading.Barrier(4)

    def delete(_: int) -> str:
        def act() -> None:
            with registry.transaction() as tx:
                tx.deletions.model(model, "anna")

        return _attempt(barrier, act)

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(delete, range(4))) == ["NotFoundError"] * 3 + ["done"]


def test_dead_worker_of_a_deleted_model_stops_nothing(registry: Registry) -> None:
    """Its job ends as cancelled when another worker looks for work."""
    model = a_model(registry)
    with registry.transaction() as tx:
        job = _enqueue(tx, model)
        lease = tx.jobs.claim("dead", [KIND], -1.0)
        assert lease is not None
        tx.deletions.model(model, "anna", force=True)
        assert tx.jobs.claim("test", [KIND], 60.0) is None
    assert _count(registry, tables.jobs, id=job, state="cancelled") == 1


@pytest.mark.slow
def test_backup_has_deleted_content_until_it_is_erased(
    sqlite_registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    """A restored registry hides it too, and erases it."""
    model = a_model(sqlite_registry)
    a_version(sqlite_registry, model)
    with sqlite_registry.transaction() as tx:
        tx.deletions.dataset(model, "validation", "anna")
    digest = _upload(sqlite_registry, model, "a", b"a")
    with sqlite_registry.transaction() as tx:
        tx.deletions.dataset(model, "a", "anna")
        tx.deletions.calibrator(model, 1, "anna")
    backup(sqlite_registry, backup_path, leave_out_damaged=True)
    restore(sqlite_target, backup_path, actor="anna")
    assert _files(sqlite_target) == [digest]
    with sqlite_target.reading() as tx:
        assert tx.datasets.page(model, None, 9) == tx.calibrators.page(model, None, 9) == []
    assert purge(sqlite_target, _NOW) == 3
    assert _files(sqlite_target) == []
    backup(sqlite_target, backup_path.with_suffix(".erased"))
