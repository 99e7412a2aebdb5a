"""Backups in a folder: names by time, age, and removal of old ones."""

from __future__ import annotations

import fcntl
import math
import os
import time
from pathlib import Path

import pytest

from recalib.errors import InputError
from recalib.registry.backup_probe import main as probe
from recalib.registry.backup_rotation import backup_age, backups_in, dated_path, remove_old


def _named(folder: Path, hours_ago: float) -> Path:
    now = time.gmtime(time.time() - hours_ago * 3600)
    path = folder / time.strftime("recalib-%Y%m%dT%H%M%SZ.zip.age", now)
    path.touch()
    return path


def test_newest_backups_and_other_files_are_kept(tmp_path: Path) -> None:
    paths = [_named(tmp_path, hours) for hours in (50, 1, 25)]
    others = [tmp_path / name for name in ("before.zip", "recalib-2026.zip", "notes.txt")]
    for path in others:
        path.touch()
    assert backups_in(tmp_path) == [paths[1], paths[2], paths[0]]
    assert backup_age(tmp_path) == pytest.approx(3600, abs=2)
    assert remove_old(tmp_path, 2) == [paths[0]]
    assert set(tmp_path.iterdir()) == {paths[1], paths[2], *others}


def test_remains_of_a_killed_backup_are_removed(tmp_path: Path) -> None:
    """Those of a backup in progress stay: it holds a lock."""
    running = tmp_path / ".recalib-20261122T030000Z.zip.age.unfinished"
    killed = tmp_path / ".recalib-20261121T030000Z.zip.age.unfinished"
    killed.touch()
    with running.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_old(tmp_path, 1)
    assert list(tmp_path.iterdir()) == [running]


def test_names_by_time_are_recognised(tmp_path: Path) -> None:
    for is_encrypted in (False, True):
        dated_path(tmp_path, is_encrypted=is_encrypted).touch()
    assert len(backups_in(tmp_path)) == 2
    assert backup_age(tmp_path) < 5


def test_probe_needs_a_recent_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert math.isinf(backup_age(tmp_path))
    assert probe(os.fspath(tmp_path), "26") == 1
    _named(tmp_path, 30)
    assert probe(os.fspath(tmp_path), "26") == 1
    _named(tmp_path, 25)
    assert probe(os.fspath(tmp_path), "26") == 0
    errors = capsys.readouterr().err.splitlines()
    assert [line.partition(str(tmp_path))[2] for line in errors] == [
        " has no backup",
        " is 30.0 hours old",
    ]


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        backup_age(tmp_path / "none")
