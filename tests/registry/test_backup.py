"""Backups: what comes out of one is what went in, from either database into either, or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from recalib.calibrator import Calibrator
from recalib.errors import (
    ConflictError,
    CorruptError,
    InputError,
    NotFoundError,
    UnavailableError,
)
from recalib.registry import Capture, Model, Registry, migrate, tables
from recalib.registry.backup import backup
from recalib.registry.engine import connect_to
from recalib.registry.restore import read_manifest, restore
from recalib.registry.tables import METADATA
from tests.fitting.conftest import draw
from tests.registry.fixtures import execute
from tests.registry.scenes import a_lease, all_rows
from tests.registry.test_labels import prediction
from tests.training.watched import Stream, a_champion
from training.monitoring_job import watch

LOGITS = draw(50, 4, 1.0)[0]


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "backup.zip"


def _fresh(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    blobs = (tmp_path / "other-blobs").as_uri()
    if kind == "sqlite":
        registry = Registry(f"sqlite:///{tmp_path / 'other.db'}", blobs)
        yield registry
        registry.close()
        return
    server = request.getfixturevalue("postgresql_url")
    name = f"restored_{uuid4().hex}"
    execute(server, f"CREATE DATABASE {name}")
    registry = Registry(server.replace("/postgres?", f"/{name}?"), blobs)
    yield registry
    registry.close()
    execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def opposite(
    request: pytest.FixtureRequest, tmp_path: Path, database_url: str
) -> Iterator[Registry]:
    """Another registry, without even a schema, in the other database than `registry`."""
    kind = "postgresql" if database_url.startswith("sqlite") else "sqlite"
    yield from _fresh(kind, request, tmp_path)


@pytest.fixture
def here(sqlite_template: Path, tmp_path: Path) -> Iterator[Registry]:
    """A fresh registry in SQLite, likewise."""
    shutil.copy(sqlite_template, tmp_path / "here.db")
    registry = Registry(f"sqlite:///{tmp_path / 'here.db'}", (tmp_path / "blobs").as_uri())
    yield registry
    registry.close()


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    """The same in SQLite only, for what the database makes no difference to."""
    yield from _fresh("sqlite", request, tmp_path)


def a_blob(registry: Registry, content: bytes) -> str:
    with registry.blobs.writer() as blob:
        blob.write(content)
        return blob.commit()


def full(registry: Registry) -> None:
    """Put something into every table: traffic, labels, evidence, keys, jobs of every state."""
    model = a_champion(registry)
    Stream(registry, model).send(400, ago=1_000)
    watch(registry, model)
    with registry.transaction() as tx:
        digest = a_blob(registry, b"rows" * 1000)
        tx.datasets.create(model, "validation", digest, 5, 4, 4000, "text/csv", "logits", {"a": 1})
        tx.captures.add(model.id, Capture(a_blob(registry, b"kept"), 5, 4, 1e9, 1e9 + 1))
        tx.labels.add(model, [(prediction(1), 2)])
        tx.labels.add(model, [(prediction(1), 3)])  # disputed, which is a boolean
        tx.monitors.record(model, 1, "stale", "monitor", "drift", {"ece": 0.1 + 0.2})
        tx.signing_keys.rotate()
        tx.api_keys.create("web", ["predict", "label"], models=["resnet"], lifetime_seconds=1e6)
        tx.idempotency.store("key", "scope", "\x7f\N{SNOWMAN}", 201, bytes(range(256)))
        tx.jobs.enqueue("fit", {"text": 'a "quoted"\nline \N{SNOWMAN}', "pi": 0.1 + 0.2})
    delivered = a_lease(registry)
    with registry.transaction() as tx:
        file = {"digest": a_blob(registry, b"weights"), "bytes": 7}
        tx.jobs.succeed(delivered, {"files": {"model.safetensors": file}})
    running = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.checkpoint(running, {"digest": a_blob(registry, b"half a run")})


def some(registry: Registry) -> Model:
    """Put in a model with a data set and a file of kept logits."""
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 4, "anna")
        digest = a_blob(registry, b"rows" * 1000)
        tx.datasets.create(model, "validation", digest, 5, 4, 4000, "text/csv", "logits", {})
        tx.captures.add(model.id, Capture(a_blob(registry, b"kept"), 5, 4, 1e9, 1e9 + 1))
    return model


def job_states(registry: Registry) -> list[tuple[str, int, bool]]:
    with registry.reading() as tx:
        jobs = tx.jobs.page(None, None, None, 100)
    return [(job.state, job.attempts, job.worker is None) for job in jobs]


def test_restored_rows_equal_the_original(registry: Registry, opposite: Registry, to: Path) -> None:
    """Every row of every table, every blob, and probabilities to the last bit; both ways."""
    full(registry)
    messages: list[str] = []
    manifest = backup(registry, to, progress=messages.append)
    before = all_rows(registry)
    assert sum(1 for rows in before.values() if rows) >= 16
    assert manifest.left_out == {}
    assert (len(manifest.blobs), len(messages)) == (4, 4 + len(METADATA.tables))
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    assert read_manifest(to) == manifest

    restore(opposite, to)
    opposite.check()
    after = all_rows(opposite)
    assert [row.action for row in after.pop("audit")] == [
        *(row.action for row in before.pop("audit")), "restore",
    ]  # fmt: skip
    jobs, again = before.pop("jobs"), after.pop("jobs")
    assert after == before
    finished = [row for row in jobs if row.state not in ("queued", "running")]
    assert [row for row in again if row.state not in ("queued", "running")] == finished
    for digest in manifest.blobs:
        opposite.blobs.verify(digest)
    with registry.reading() as tx, opposite.reading() as restored:
        model = tx.models.get("resnet")
        here = Calibrator.from_bytes(tx.calibrators.parameters(model, 1)).predict(LOGITS)
        there = Calibrator.from_bytes(restored.calibrators.parameters(model, 1)).predict(LOGITS)
    assert here.tobytes() == there.tobytes()


def test_running_job_is_requeued(registry: Registry, elsewhere: Registry, to: Path) -> None:
    """It does not count as an attempt; the earlier worker has an old fence."""
    with registry.transaction() as tx:
        tx.jobs.enqueue("fit", {}, priority=9)
    running = a_lease(registry)
    cancelled = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.cancel(cancelled.job.id)
    backup(registry, to)
    restore(elsewhere, to)
    assert [state for state, *_ in job_states(registry)] == ["queued", "running", "running"]
    states = job_states(elsewhere)
    assert sorted(states) == [("cancelled", 0, True), ("queued", 0, True), ("queued", 0, True)]
    with elsewhere.transaction() as tx:
        again = tx.jobs.claim("w", ["fit"], 60)
        assert again is not None
        assert again.job.attempts == 1
        assert again.fence > running.fence + 1_000_000


def test_new_rows_continue_the_numbering(registry: Registry, opposite: Registry, to: Path) -> None:
    """A database that counts from 1 again would refuse the next model."""
    with registry.transaction() as tx:
        first = tx.models.create("one", None, 2, "anna")
        tx.jobs.enqueue("fit", {})
    backup(registry, to)
    restore(opposite, to)
    with opposite.transaction() as tx:
        assert tx.models.create("two", None, 2, "anna").id > first.id
        tx.jobs.enqueue("fit", {})


def test_backup_runs_while_the_registry_changes(
    registry: Registry, elsewhere: Registry, to: Path
) -> None:
    """Rows are of one moment, and blobs that come and go meanwhile are there or not named."""
    model = some(registry)

    def meanwhile(what: str) -> None:
        number = len(changes)
        changes.append(what)
        if number % 4 != 1 and what != "table models":
            return
        with registry.transaction() as tx:
            digest = a_blob(registry, b"%d" % number)
            tx.datasets.create(model, f"d{number}", digest, 1, 4, 1, "text/csv", "logits", {})
            if number == 1 or (what == "table models" and changes.count(what) < 3):
                gone = tx.captures.delete(model, 1e11)
                new_digest = a_blob(registry, b"kept %d" % number)
                tx.captures.add(model.id, Capture(new_digest, 1, 1, 1e9, 1e9))
                for removed in gone:
                    registry.blobs.remove(removed)

    changes: list[str] = []
    manifest = backup(registry, to, progress=meanwhile)
    assert changes.count("table models") == 3  # the first two snapshots named what had gone
    restore(elsewhere, to)
    with elsewhere.reading() as tx:
        named = {dataset.digest for dataset in tx.datasets.page(model, None, 1000)}
        named |= {capture.digest for capture in tx.captures.between(model, 0, 1e11)}
    assert len(named) > 5
    assert named <= set(manifest.blobs)
    for digest in named:
        elsewhere.blobs.verify(digest)


def test_missing_or_damaged_blob_is_reported(here: Registry, elsewhere: Registry, to: Path) -> None:
    """And there is no backup without it, unless that is asked for."""
    some(here)
    with here.reading() as tx:
        lost = tx.datasets.get(tx.models.get("resnet"), "validation").digest
    path = Path(here.blobs.path(lost))
    for damage in (lambda: path.write_bytes(b"rot"), path.unlink):
        damage()
        with pytest.raises(CorruptError, match=f"blob {lost} of data set validation"):
            backup(here, to)
        assert not to.exists()
    manifest = backup(here, to, leave_out_damaged=True)
    assert manifest.left_out == {lost: "data set validation"}
    restore(elsewhere, to)
    with pytest.raises(NotFoundError):
        elsewhere.blobs.open(lost)


def test_existing_file_is_not_overwritten(here: Registry, to: Path, tmp_path: Path) -> None:
    to.write_text("mine")
    with pytest.raises(InputError, match=r"to: found .*which exists"):
        backup(here, to)
    assert to.read_text() == "mine"
    with pytest.raises(InputError, match="No such file"):
        backup(here, tmp_path / "none" / "b.zip")
    new = tmp_path / "new.zip"
    with pytest.raises(InputError, match="File exists"):
        backup(here, new, progress=lambda _: new.write_text("meanwhile"))
    assert new.read_text() == "meanwhile"
    with pytest.raises(InputError, match="accepted: a registry"):
        backup(Registry(f"sqlite:///{tmp_path}/none.db", "memory://"), tmp_path / "b.zip")
    assert not list(tmp_path.glob(".*"))


def test_concurrent_backups_to_one_name_conflict(here: Registry, to: Path) -> None:
    def again(_: str) -> None:
        with pytest.raises(InputError, match="another backup is writing"):
            backup(here, to)

    backup(here, to, progress=again)
    assert read_manifest(to).tables["models"].rows == 0


def test_nonempty_registry_is_not_replaced(here: Registry, elsewhere: Registry, to: Path) -> None:
    """Unless asked to; what a server makes for itself as it starts is not anything."""
    some(here)
    backup(here, to)
    elsewhere.migrate()
    with elsewhere.transaction() as tx:
        tx.signing_keys.first()
    restore(elsewhere, to)
    with elsewhere.transaction() as tx:
        tx.models.create("later", None, 2, "anna")
    before = all_rows(elsewhere)
    with pytest.raises(ConflictError, match=r"not empty: .* has \d+ rows; --force"):
        restore(elsewhere, to)
    assert all_rows(elsewhere) == before
    restore(elsewhere, to, force=True)
    assert [row.name for row in all_rows(elsewhere)["models"]] == ["resnet"]


def test_registry_in_use_is_not_restored(registry: Registry, opposite: Registry, to: Path) -> None:
    """An idle connection is enough: its owner goes by what it has read."""
    backup(registry, to)
    opposite.migrate()
    idle = connect_to(opposite._engine.url.render_as_string(hide_password=False))
    with idle.connect() as connection:
        connection.execute(text("SELECT count(*) FROM models"))
    with pytest.raises(ConflictError, match="stop every server and worker"):
        restore(opposite, to, force=True)
    idle.dispose()
    restore(opposite, to)


def test_older_schema_is_upgraded(
    registry: Registry, elsewhere: Registry, to: Path, request: pytest.FixtureRequest
) -> None:
    """A backup made before an upgrade is restored after it."""
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
    manifest = backup(registry, to)
    request.getfixturevalue("later_version")
    assert (manifest.schema, migrate.head()) == ("0009", "0010")
    restore(elsewhere, to)
    assert elsewhere.check() == ""
    with elsewhere.reading() as tx:
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
    here: Registry, elsewhere: Registry, to: Path, field: str, value: Any, accepted: str
) -> None:
    """The error says what to do."""
    backup(here, to)
    other = to.with_name("other.zip")
    _rewritten(to, other, "manifest.json", lambda old: _changed(old, field, value))
    with pytest.raises(InputError, match=accepted):
        restore(elsewhere, other, force=True)


def test_database_of_a_later_version_is_not_replaced(
    here: Registry, elsewhere: Registry, to: Path
) -> None:
    backup(here, to)
    elsewhere.migrate()
    with elsewhere.transaction() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(UnavailableError, match="newer Recalib"):
        restore(elsewhere, to, force=True)


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


def test_incomplete_backup_changes_nothing(here: Registry, elsewhere: Registry, to: Path) -> None:
    """Cut short, bent or left out anywhere, or something else altogether."""
    some(here)
    backup(here, to)
    original = to.read_bytes()
    bad = to.with_name("bad.zip")
    for content in (b"", b"text", b"\x00" * 100, original[1:]):
        bad.write_bytes(content)
        with pytest.raises(InputError, match=r"from: found .*accepted: a file that"):
            restore(elsewhere, bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
    with pytest.raises(InputError, match="accepted: a file that"):
        restore(elsewhere, bad)
    for end in (10, len(original) // 3, len(original) - 1):
        bad.write_bytes(original[:end])
        with pytest.raises(CorruptError):
            restore(elsewhere, bad)
    with zipfile.ZipFile(to) as archive:
        members = [member for member in archive.infolist() if member.file_size]
    assert len(members) == 7  # three tables with rows, one with a number, two blobs, the manifest
    for member in members:
        extra = int.from_bytes(
            original[member.header_offset + 28 : member.header_offset + 30], "little"
        )
        begin = member.header_offset + 30 + len(member.filename) + extra
        place = begin + member.compress_size // 2
        bad.write_bytes(original[:place] + bytes([original[place] ^ 4]) + original[place + 1 :])
        with pytest.raises((CorruptError, InputError)):
            restore(elsewhere, bad)
        if member.filename != "manifest.json":
            _rewritten(to, bad, member.filename, lambda _: None)
            with pytest.raises(CorruptError, match="lacks"):
                restore(elsewhere, bad)
            _rewritten(to, bad, member.filename, lambda old: old + b"[1]\n")
            with pytest.raises(CorruptError, match="promises"):
                restore(elsewhere, bad)
    assert all_rows(elsewhere)["models"] == []


def _killed(at: int, act: Callable[[Callable[[str], None]], object]) -> bool:
    """Do something in a process that kills itself at its n-th word; return whether it had to."""
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


def test_killed_backup_or_restore_leaves_a_consistent_state(
    registry: Registry, opposite: Registry, to: Path, tmp_path: Path
) -> None:
    """Of a backup no file by its name; of a restore the registry that was there before."""
    with registry.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
        for number in range(2):
            digest = a_blob(registry, b"%d" % number)
            tx.datasets.create(model, f"d{number}", digest, 1, 2, 1, "text/csv", "logits", {})
    urls = [
        source._engine.url.render_as_string(hide_password=False) for source in (registry, opposite)
    ]
    registry.close()

    def make(say: Callable[[str], None]) -> None:
        backup(Registry(urls[0], registry.blobs.url), to, progress=say)

    words = 2 + len(METADATA.tables)
    for at in (1, words - 1):
        assert _killed(at, make)
        assert not to.exists()
    assert not _killed(words, make)
    assert not list(tmp_path.glob(".*"))

    opposite.migrate()
    with opposite.transaction() as tx:
        tx.models.create("before", None, 2, "anna")
    before = all_rows(opposite)
    opposite.close()

    def bring_back(say: Callable[[str], None]) -> None:
        restore(Registry(urls[1], opposite.blobs.url), to, force=True, progress=say)

    for at in (len(METADATA.tables) + 1, words + len(METADATA.tables) - 1):
        assert _killed(at, bring_back)
        looked = Registry(urls[1], opposite.blobs.url)
        assert all_rows(looked) == before
        looked.close()
    assert not _killed(words + len(METADATA.tables), bring_back)
    looked = Registry(urls[1], opposite.blobs.url)
    assert [row.name for row in all_rows(looked)["models"]] == ["resnet"]
    looked.close()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket of S3, which a thread of this process is."""
    from moto.server import ThreadedMotoServer

    store = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    store.start()
    host, port = store.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    yield "s3://recalib"
    store.stop()


@pytest.mark.slow
def test_blobs_in_a_bucket_are_restored(
    bucket: str, elsewhere: Registry, to: Path, tmp_path: Path
) -> None:
    """Which has neither folders nor renames that are safe; from there and to there."""
    here = Registry(f"sqlite:///{tmp_path}/bucket.db", f"{bucket}/here")
    here.migrate()
    here.blobs.prepare()
    with here.transaction() as tx:
        model = tx.models.create("resnet", None, 2, "anna")
        digest = a_blob(here, bytes(range(256)) * 40_000)
        tx.datasets.create(model, "d", digest, 1, 2, 1, "text/csv", "logits", {})
    backup(here, to)
    with here.blobs.filesystem.open(here.blobs.path(digest), "wb") as file:
        file.write(b"others")
    with pytest.raises(CorruptError, match=digest):
        backup(here, to.with_name("damaged.zip"))
    here.close()
    restore(elsewhere, to)
    elsewhere.blobs.verify(digest)
    again = Registry(f"sqlite:///{tmp_path}/again.db", f"{bucket}/again")
    restore(again, to)
    again.blobs.verify(digest)
    again.close()


def test_database_file_is_private(elsewhere: Registry, tmp_path: Path) -> None:
    """It holds the keys that sign."""
    elsewhere.migrate()
    elsewhere.check()
    for name in ("other.db", "other.db-wal"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_digests_match_sha256sum(here: Registry, to: Path) -> None:
    """So that a backup can be looked through without Recalib."""
    some(here)
    manifest = backup(here, to)
    with zipfile.ZipFile(to) as archive:
        assert archive.testzip() is None
        for digest in manifest.blobs:
            content = archive.read(f"blobs/{digest[:2]}/{digest}")
            assert hashlib.sha256(content).hexdigest() == digest
        rows = archive.read(manifest.tables["models"].member).splitlines()
    assert json.loads(rows[0])[manifest.tables["models"].columns.index("name")] == "resnet"
    assert manifest.tables["models"].rows == len(rows) == 1
    assert tables.models.c.keys() == manifest.tables["models"].columns
