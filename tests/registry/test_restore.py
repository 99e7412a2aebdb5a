"""Restoring a backup: refused with an error and without a change, or complete."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from recalib.errors import (
    ConflictError,
    CorruptError,
    InputError,
    UnavailableError,
)
from recalib.registry import Registry, migrate
from recalib.registry.backup import backup
from recalib.registry.engine import connect_to
from recalib.registry.restore import restore
from tests.registry.contents import add_dataset
from tests.registry.scenes import a_lease, all_rows


def job_states(registry: Registry) -> list[tuple[str, int, bool]]:
    with registry.reading() as tx:
        jobs = tx.jobs.page(None, None, None, 100)
    return [(job.state, job.attempts, job.worker is None) for job in jobs]


def test_running_job_is_requeued(
    registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    """It does not count as an attempt; the earlier worker has an old fence."""
    with registry.transaction() as tx:
        tx.jobs.enqueue("fit", {}, priority=9)
    running = a_lease(registry)
    cancelled = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.cancel(cancelled.job.id)
    backup(registry, backup_path)
    restore(sqlite_target, backup_path)
    assert [state for state, *_ in job_states(registry)] == ["queued", "running", "running"]
    states = job_states(sqlite_target)
    assert sorted(states) == [("cancelled", 0, True), ("queued", 0, True), ("queued", 0, True)]
    with sqlite_target.transaction() as tx:
        again = tx.jobs.claim("w", ["fit"], 60)
        assert again is not None
        assert again.job.attempts == 1
        assert again.fence > running.fence + 1_000_000


def test_new_rows_continue_the_numbering(
    registry: Registry, other_target: Registry, backup_path: Path
) -> None:
    """A database that counts from 1 again would refuse the next model."""
    with registry.transaction() as tx:
        first = tx.models.create("one", None, 2, "anna")
        tx.jobs.enqueue("fit", {})
    backup(registry, backup_path)
    restore(other_target, backup_path)
    with other_target.transaction() as tx:
        assert tx.models.create("two", None, 2, "anna").id > first.id
        tx.jobs.enqueue("fit", {})


@pytest.mark.slow
def test_nonempty_registry_is_not_replaced(
    sqlite_registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    """Only with `force`; a registry that a server has only started with counts as empty."""
    add_dataset(sqlite_registry)
    backup(sqlite_registry, backup_path)
    sqlite_target.migrate()
    with sqlite_target.transaction() as tx:
        tx.signing_keys.first()
    restore(sqlite_target, backup_path)
    with sqlite_target.transaction() as tx:
        tx.models.create("later", None, 2, "anna")
    before = all_rows(sqlite_target)
    with pytest.raises(ConflictError, match=r"not empty: .* has \d+ rows; --force"):
        restore(sqlite_target, backup_path)
    assert all_rows(sqlite_target) == before
    restore(sqlite_target, backup_path, force=True)
    assert [row.name for row in all_rows(sqlite_target)["models"]] == ["resnet"]


@pytest.mark.slow
def test_registry_in_use_is_not_restored(
    registry: Registry, other_target: Registry, backup_path: Path
) -> None:
    """An idle connection counts as use: its program relies on what it has read."""
    backup(registry, backup_path)
    other_target.migrate()
    idle = connect_to(other_target._engine.url.render_as_string(hide_password=False))
    with idle.connect() as connection:
        connection.execute(text("SELECT count(*) FROM models"))
    with pytest.raises(ConflictError, match="stop every server and worker"):
        restore(other_target, backup_path, force=True)
    idle.dispose()
    restore(other_target, backup_path)


def test_older_schema_is_upgraded(
    registry: Registry, sqlite_target: Registry, backup_path: Path, request: pytest.FixtureRequest
) -> None:
    """A backup made before an upgrade is restored after it."""
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
    manifest = backup(registry, backup_path)
    assert manifest.schema == migrate.head()
    request.getfixturevalue("later_version")
    assert manifest.schema < migrate.head()
    restore(sqlite_target, backup_path)
    assert sqlite_target.check() == ""
    with sqlite_target.reading() as tx:
        assert tx.models.get("resnet") == model


@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [
        ("schema", "9999", "needs a later Recalib"),
        ("version", 2, "needs a later Recalib"),
        ("schema", "0006", "upgrade it to 0009 with commit"),
    ],
)
def test_backup_of_another_version_is_refused(
    sqlite_registry: Registry,
    sqlite_target: Registry,
    backup_path: Path,
    field: str,
    value: Any,
    accepted: str,
) -> None:
    """The error says what to do."""
    backup(sqlite_registry, backup_path)
    other = backup_path.with_name("other.zip")
    _rewritten(backup_path, other, "manifest.json", lambda old: _changed(old, field, value))
    with pytest.raises(InputError, match=accepted):
        restore(sqlite_target, other, force=True)


def test_database_of_a_later_version_is_not_replaced(
    sqlite_registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    backup(sqlite_registry, backup_path)
    sqlite_target.migrate()
    with sqlite_target.transaction() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError, match="newer Recalib"):
        restore(sqlite_target, backup_path, force=True)


def _changed(manifest: bytes, name: str, value: Any) -> bytes:
    return json.dumps({**json.loads(manifest), name: value}).encode()


def _rewritten(
    source: Path, target: Path, member: str, change: Callable[[bytes], bytes | None]
) -> None:
    """Copy an archive with one member changed, or left out."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(old.read(name)) if name == member else old.read(name)
            if content is not None:
                new.writestr(name, content)


@pytest.mark.slow
def test_incomplete_backup_changes_nothing(
    sqlite_registry: Registry, sqlite_target: Registry, backup_path: Path
) -> None:
    """Truncated, changed, without a member, or a file of another format."""
    add_dataset(sqlite_registry)
    backup(sqlite_registry, backup_path)
    original = backup_path.read_bytes()
    bad = backup_path.with_name("bad.zip")
    for content in (b"", b"text", b"\x00" * 100, original[1:]):
        bad.write_bytes(content)
        with pytest.raises(InputError, match=r"from: found .*accepted: a file that"):
            restore(sqlite_target, bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
    with pytest.raises(InputError, match="accepted: a file that"):
        restore(sqlite_target, bad)
    for end in (10, len(original) // 3, len(original) - 1):
        bad.write_bytes(original[:end])
        with pytest.raises(CorruptError):
            restore(sqlite_target, bad)
    with zipfile.ZipFile(backup_path) as archive:
        members = [member for member in archive.infolist() if member.file_size]
    assert len(members) == 8  # three tables with rows, two with a number, two blobs, the manifest
    for member in members:
        extra = int.from_bytes(
            original[member.header_offset + 28 : member.header_offset + 30], "little"
        )
        begin = member.header_offset + 30 + len(member.filename) + extra
        place = begin + member.compress_size // 2
        bad.write_bytes(original[:place] + bytes([original[place] ^ 4]) + original[place + 1 :])
        with pytest.raises((CorruptError, InputError)):
            restore(sqlite_target, bad)
        if member.filename != "manifest.json":
            _rewritten(backup_path, bad, member.filename, lambda _: None)
            with pytest.raises(CorruptError, match="lacks"):
                restore(sqlite_target, bad)
            _rewritten(backup_path, bad, member.filename, lambda old: old + b"[1]\n")
            with pytest.raises(CorruptError, match="promises"):
                restore(sqlite_target, bad)
    assert all_rows(sqlite_target)["models"] == []


def test_pipe_and_encrypted_file_are_refused(sqlite_target: Registry, tmp_path: Path) -> None:
    """A program that decrypts into a pipe reports a damaged file after most of it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a.zip.age").write_bytes(b"age-encryption.org/v1\n-> X25519 abc")
    for name, message in [
        ("pipe", "which is no regular file"),
        ("a.zip.age", "which is encrypted; accepted: the file that `age --decrypt"),
    ]:
        with pytest.raises(InputError, match=message):
            restore(sqlite_target, tmp_path / name)
    assert not (tmp_path / "other.db").exists()


def test_database_file_is_private(sqlite_target: Registry, tmp_path: Path) -> None:
    """It holds the keys that sign."""
    sqlite_target.migrate()
    sqlite_target.check()
    for name in ("other.db", "other.db-wal"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
