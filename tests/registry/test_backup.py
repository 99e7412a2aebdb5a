"""Backups: a restored registry equals the original, on both databases."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from recalib.calibrator import Calibrator
from recalib.errors import (
    CorruptError,
    InputError,
    NotFoundError,
)
from recalib.registry import Capture, Registry, tables
from recalib.registry.backup import backup
from recalib.registry.restore import read_manifest, restore
from recalib.registry.tables import METADATA
from tests.fitting.conftest import draw
from tests.registry.contents import add_dataset, fill_all_tables, store_blob
from tests.registry.scenes import all_rows

LOGITS = draw(50, 4, 1.0)[0]


@pytest.mark.slow
def test_restored_rows_equal_the_original(
    registry: Registry, other_target: Registry, backup_path: Path
) -> None:
    """Every row of every table, every blob, and probabilities to the last bit; both ways."""
    fill_all_tables(registry)
    messages: list[str] = []
    manifest = backup(registry, backup_path, progress=messages.append)
    before = all_rows(registry)
    assert sum(1 for rows in before.values() if rows) >= 16
    assert manifest.left_out == {}
    assert (len(manifest.blobs), len(messages)) == (4, 4 + len(METADATA.tables))
    assert stat.S_IMODE(backup_path.stat().st_mode) == 0o600
    assert read_manifest(backup_path) == manifest

    restore(other_target, backup_path)
    other_target.check()
    after = all_rows(other_target)
    assert [row.action for row in after.pop("audit")] == [
        *(row.action for row in before.pop("audit")), "restore",
    ]  # fmt: skip
    jobs, again = before.pop("jobs"), after.pop("jobs")
    # A consumer may know ids of events after the backup; they are not used again.
    ids, later_ids = before.pop("event_sequence"), after.pop("event_sequence")
    assert later_ids[0].last > ids[0].last + 1_000_000
    assert after == before
    finished = [row for row in jobs if row.state not in ("queued", "running")]
    assert [row for row in again if row.state not in ("queued", "running")] == finished
    for digest in manifest.blobs:
        other_target.blobs.verify(digest)
    with registry.reading() as tx, other_target.reading() as restored:
        model = tx.models.get("resnet")
        original = Calibrator.from_bytes(tx.calibrators.parameters(model, 1)).predict(LOGITS)
        restored_rows = Calibrator.from_bytes(restored.calibrators.parameters(model, 1)).predict(
            LOGITS
        )
    assert original.tobytes() == restored_rows.tobytes()


@pytest.mark.slow
def test_backup_runs_while_the_registry_changes(
    registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    """All rows have the same time; each named blob is in the backup."""
    model = add_dataset(registry)

    def meanwhile(what: str) -> None:
        number = len(changes)
        changes.append(what)
        if number % 4 != 1 and what != "table models":
            return
        with registry.transaction() as tx:
            digest = store_blob(registry, b"%d" % number)
            tx.datasets.create(model, f"d{number}", digest, 1, 4, 1, "text/csv", "logits", {})
            if number == 1 or (what == "table models" and changes.count(what) < 3):
                gone = tx.captures.delete(model, 1e11)
                new_digest = store_blob(registry, b"kept %d" % number)
                tx.captures.add(model.id, Capture(new_digest, 1, 1, 1e9, 1e9))
                for removed in gone:
                    registry.blobs.remove(removed)

    changes: list[str] = []
    manifest = backup(registry, backup_path, progress=meanwhile)
    assert changes.count("table models") == 3  # the first two snapshots named removed blobs
    restore(sqlite_target, backup_path)
    with sqlite_target.reading() as tx:
        named = {dataset.digest for dataset in tx.datasets.page(model, None, 1000)}
        named |= {capture.digest for capture in tx.captures.between(model, 0, 1e11)}
    assert len(named) > 5
    assert named <= set(manifest.blobs)
    for digest in named:
        sqlite_target.blobs.verify(digest)


@pytest.mark.slow
def test_missing_or_damaged_blob_is_reported(
    sqlite_registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    """No backup is written without the blob, unless `leave_out_damaged` is set."""
    add_dataset(sqlite_registry)
    with sqlite_registry.reading() as tx:
        lost = tx.datasets.get(tx.models.get("resnet"), "validation").digest
    path = Path(sqlite_registry.blobs.path(lost))
    for damage in (lambda: path.write_bytes(b"rot"), path.unlink):
        damage()
        with pytest.raises(CorruptError, match=f"blob {lost} of data set validation"):
            backup(sqlite_registry, backup_path)
        assert not backup_path.exists()
    manifest = backup(sqlite_registry, backup_path, leave_out_damaged=True)
    assert manifest.left_out == {lost: "data set validation"}
    restore(sqlite_target, backup_path)
    with pytest.raises(NotFoundError):
        sqlite_target.blobs.open(lost)


def test_existing_file_is_not_overwritten(
    sqlite_registry: Registry, backup_path: Path, tmp_path: Path
) -> None:
    backup_path.write_text("mine")
    with pytest.raises(InputError, match=r"to: found .*which exists"):
        backup(sqlite_registry, backup_path)
    assert backup_path.read_text() == "mine"
    with pytest.raises(InputError, match="No such file"):
        backup(sqlite_registry, tmp_path / "none" / "b.zip")
    new = tmp_path / "new.zip"
    with pytest.raises(InputError, match="File exists"):
        backup(sqlite_registry, new, progress=lambda _: new.write_text("meanwhile"))
    assert new.read_text() == "meanwhile"
    with pytest.raises(InputError, match="accepted: a registry"):
        backup(Registry(f"sqlite:///{tmp_path}/none.db", "memory://"), tmp_path / "b.zip")
    assert not list(tmp_path.glob(".*"))


def test_concurrent_backups_to_one_name_conflict(
    sqlite_registry: Registry, backup_path: Path
) -> None:
    def again(_: str) -> None:
        with pytest.raises(InputError, match="another backup is writing"):
            backup(sqlite_registry, backup_path)

    backup(sqlite_registry, backup_path, progress=again)
    assert read_manifest(backup_path).tables["models"].rows == 0


def _killed(at: int, act: Callable[[Callable[[str], None]], object]) -> bool:
    """Call `act` in a process that kills itself at message `at`; return whether it was killed."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    words = iter(range(at))

    def say(_: str) -> None:
        if next(words, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        act(say)
    finally:
        os._exit(0)


@pytest.mark.slow
def test_killed_backup_or_restore_leaves_a_consistent_state(
    registry: Registry, other_target: Registry, backup_path: Path, tmp_path: Path
) -> None:
    """A killed backup leaves no file; a killed restore leaves the registry unchanged."""
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
        for number in range(2):
            digest = store_blob(registry, b"%d" % number)
            tx.datasets.create(model, f"d{number}", digest, 1, 2, 1, "text/csv", "logits", {})
    urls = [
        source._engine.url.render_as_string(hide_password=False)
        for source in (registry, other_target)
    ]
    registry.close()

    def make(say: Callable[[str], None]) -> None:
        backup(Registry(urls[0], registry.blobs.url), backup_path, progress=say)

    words = 2 + len(METADATA.tables)
    for at in (1, words - 1):
        assert _killed(at, make)
        assert not backup_path.exists()
    assert not _killed(words, make)
    assert not list(tmp_path.glob(".*"))

    other_target.migrate()
    with other_target.transaction() as tx:
        tx.models.create("before", None, 2, "anna")
    before = all_rows(other_target)
    other_target.close()

    def bring_back(say: Callable[[str], None]) -> None:
        restore(Registry(urls[1], other_target.blobs.url), backup_path, force=True, progress=say)

    for at in (len(METADATA.tables) + 1, words + len(METADATA.tables) - 1):
        assert _killed(at, bring_back)
        looked = Registry(urls[1], other_target.blobs.url)
        assert all_rows(looked) == before
        looked.close()
    assert not _killed(words + len(METADATA.tables), bring_back)
    looked = Registry(urls[1], other_target.blobs.url)
    assert [row.name for row in all_rows(looked)["models"]] == ["resnet"]
    looked.close()


@pytest.mark.slow
def test_blobs_in_a_bucket_are_restored(
    bucket: str, sqlite_target: Registry, backup_path: Path, tmp_path: Path
) -> None:
    """S3 has no folders and no atomic renames; from a bucket and to a bucket."""
    in_bucket = Registry(f"sqlite:///{tmp_path}/bucket.db", f"{bucket}/here")
    in_bucket.migrate()
    in_bucket.blobs.prepare()
    with in_bucket.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
        digest = store_blob(in_bucket, bytes(range(256)) * 40_000)
        tx.datasets.create(model, "d", digest, 1, 2, 1, "text/csv", "logits", {})
    backup(in_bucket, backup_path)
    with in_bucket.blobs.filesystem.open(in_bucket.blobs.path(digest), "wb") as file:
        file.write(b"others")
    with pytest.raises(CorruptError, match=digest):
        backup(in_bucket, backup_path.with_name("damaged.zip"))
    in_bucket.close()
    restore(sqlite_target, backup_path)
    sqlite_target.blobs.verify(digest)
    again = Registry(f"sqlite:///{tmp_path}/again.db", f"{bucket}/again")
    restore(again, backup_path)
    again.blobs.verify(digest)
    again.close()


def test_digests_match_sha256sum(sqlite_registry: Registry, backup_path: Path) -> None:
    """A backup can be inspected without Recalib."""
    add_dataset(sqlite_registry)
    manifest = backup(sqlite_registry, backup_path)
    with zipfile.ZipFile(backup_path) as archive:
        assert archive.testzip() is None
        for digest in manifest.blobs:
            content = archive.read(f"blobs/{digest[:2]}/{digest}")
            assert hashlib.sha256(content).hexdigest() == digest
        rows = archive.read(manifest.tables["models"].member).splitlines()
    assert json.loads(rows[0])[manifest.tables["models"].columns.index("name")] == "resnet"
    assert manifest.tables["models"].rows == len(rows) == 1
    assert tables.models.c.keys() == manifest.tables["models"].columns
