"""deploy/backup.sh with the real `age`: encrypted, verified and rotated backups."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from recalib.errors import InputError
from recalib.registry import Registry
from recalib.registry.audit import SCHEDULED_BACKUP
from recalib.registry.restore import restore
from tests.deploy.backups import age, age_program
from tests.deploy.composed import ROOT
from tests.registry.conftest import sqlite_registry, sqlite_target
from tests.registry.scenes import all_rows

__all__ = ["sqlite_registry", "sqlite_target"]

_SCRIPT = ROOT / "deploy" / "backup.sh"
_OLD = [f"recalib-2026010{day}T000000Z.zip.age" for day in (1, 2, 3)]
#: Writes an archive of two bytes, and a file in place of the record.
_STAND_IN = 'case $1 in backup) printf PK ;; *) touch "$RECALIB_HOME/recorded" ;; esac'


class _Machine:
    """A registry, its key and a folder with three older backups."""

    def __init__(self, folder: Path) -> None:
        keygen = age_program("age-keygen")
        self.home, self.backups, self.key = folder / "home", folder / "a b", folder / "key"
        self.programs = folder / "programs"
        for path in (self.home, folder / "volume", self.programs):
            path.mkdir()
        self.backups.symlink_to(folder / "volume")
        self.replace("recalib", _STAND_IN)
        for name in _OLD:
            (self.backups / name).touch()
        subprocess.run([keygen, "-o", self.key], capture_output=True, check=True)

    def run(self, keep: str = "2", **places: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [_SCRIPT, self.backups, self.key, keep],
            env={
                **os.environ,
                **places,
                "RECALIB_HOME": str(self.home),
                "PATH": f"{self.programs}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            check=False,
        )

    def replace(self, program: str, script: str) -> None:
        """Put a shell script before a program."""
        path = self.programs / program
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def decrypt(self, file: Path, to: Path) -> int:
        return age("--decrypt", "--identity", self.key, "--output", to, file).returncode

    def assert_unchanged(self) -> None:
        assert sorted(path.name for path in self.backups.iterdir()) == _OLD
        assert not (self.home / "recorded").exists()


@pytest.fixture
def machine(tmp_path: Path) -> _Machine:
    return _Machine(tmp_path)


def test_only_the_newest_backups_stay(machine: _Machine, tmp_path: Path) -> None:
    """Files of other names stay."""
    for name in ("before.zip", "recalib-2026.zip.age"):
        (machine.backups / name).touch()
    process = machine.run()
    assert process.returncode == 0, process.stderr
    assert (machine.home / "recorded").exists()
    file, *others = sorted(machine.backups.iterdir(), key=lambda path: path.stat().st_mtime)[::-1]
    assert {path.name for path in others} == {_OLD[2], "before.zip", "recalib-2026.zip.age"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert machine.decrypt(file, tmp_path / "backup.zip") == 0
    assert (tmp_path / "backup.zip").read_text() == "PK"


@pytest.mark.slow
def test_backup_is_encrypted_and_restored(
    machine: _Machine, sqlite_registry: Registry, sqlite_target: Registry, tmp_path: Path
) -> None:
    """Neither content nor recipient can be read without the key."""
    (machine.programs / "recalib").unlink()
    (machine.programs / "recalib").symlink_to(Path(sys.executable).with_name("recalib"))
    with sqlite_registry.transaction() as tx, sqlite_registry.blobs.writer() as blob:
        blob.write(os.urandom(200_000))
        model = tx.models.create("resnet", None, 2, "anna")
        tx.datasets.create(model, "d", blob.commit(), 1, 2, 200_000, "text/csv", "logits", {})
    places = {
        "RECALIB_DATABASE_URL": f"sqlite:///{tmp_path / 'here.db'}",
        "RECALIB_BLOB_URL": (tmp_path / "blobs").as_uri(),
    }
    process = machine.run(**places)
    assert process.returncode == 0, process.stderr
    with sqlite_registry.reading() as tx:
        assert tx.audit.last(SCHEDULED_BACKUP) is not None
    file = max(machine.backups.iterdir(), key=lambda path: path.name)
    content = file.read_bytes()
    command = [age_program("age-keygen"), "-y", machine.key]
    recipient = subprocess.run(command, capture_output=True, check=True).stdout.strip()
    assert recipient.startswith(b"age1")
    for text in (b"resnet", b"PK\x03\x04", b"manifest", recipient):
        assert text not in content
        assert text not in process.stdout.encode() + process.stderr.encode()

    archive = tmp_path / "backup.zip"
    assert machine.decrypt(file, archive) == 0
    restore(sqlite_target, archive)
    rows, restored = all_rows(sqlite_registry), all_rows(sqlite_target)
    assert restored["models"] == rows["models"]
    assert restored["datasets"] == rows["datasets"]

    # A damaged backup is refused by its key.
    damaged = tmp_path / "damaged.age"
    place = len(content) // 2
    changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    for bad in (content[:-1], content[:place], changed, content + b"\0", archive.read_bytes()):
        damaged.write_bytes(bad)
        assert machine.decrypt(damaged, tmp_path / "damaged.zip") != 0


def test_failed_backup_leaves_the_older_ones(machine: _Machine) -> None:
    """The registry is missing, a program is killed, the key is wrong, or the disk damages data."""
    real = age_program()
    for program, script in [
        ("recalib", "printf PK; kill -9 $$"),
        ("age", "head -c 100; exit 1"),
        ("age", f'case $1 in --encrypt) {real} "$@" | head -c -1 ;; *) {real} "$@" ;; esac'),
    ]:
        machine.replace(program, script)
        assert machine.run().returncode != 0, script
        machine.assert_unchanged()
        (machine.programs / program).unlink()
        machine.replace("recalib", _STAND_IN)
    machine.key.write_text("AGE-SECRET-KEY-1")
    assert machine.run().returncode != 0
    machine.assert_unchanged()
    for keep in ("0", "", "-1", "all"):
        refused = machine.run(keep)
        assert (refused.returncode, refused.stderr) == (
            2,
            f"KEEP: found {keep}; accepted: a number above 0\n",
        )
    machine.assert_unchanged()


def test_remains_of_a_killed_backup_are_removed(machine: _Machine) -> None:
    """Those of a backup in progress stay."""
    killed, running = (machine.backups / f".recalib-{name}.unfinished" for name in "ab")
    for path in (killed, running):
        path.touch()
    os.utime(killed, (0, 0))
    machine.replace("recalib", "exit 1")
    assert machine.run().returncode == 1
    assert not killed.exists()
    assert running.exists()


def test_backup_of_the_version_before_is_read(
    machine: _Machine, sqlite_target: Registry, tmp_path: Path
) -> None:
    """Recalib encrypted it itself, in the same format, with a key in the same form.

    Its schema is of a development version, which `restore` names with what to do.
    """
    folder = Path(__file__).parent / "stored"
    shutil.copy(folder / "backup-key", machine.key)
    archive = tmp_path / "backup.zip"
    assert machine.decrypt(folder / "recalib-20261126T000000Z.zip.age", archive) == 0
    with pytest.raises(InputError, match=r"schema 0024.* with commit 7ac291e of Recalib first"):
        restore(sqlite_target, archive)
