"""Scheduled backups in one folder: names by time, the age of the newest, removal of the oldest."""

from __future__ import annotations

import math
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from recalib.errors import InputError

#: The action in the audit trail, from which the age of the last backup is exported.
SCHEDULED_BACKUP = "scheduled_backup"
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"recalib-(\d{8}T\d{6}Z)\.zip(\.age)?")


def dated_path(folder: Path, *, is_encrypted: bool) -> Path:
    """Return the path of a backup at this time: ``recalib-20261122T030000Z.zip.age``."""
    suffix = ".zip.age" if is_encrypted else ".zip"
    return folder / f"recalib-{datetime.now(UTC).strftime(_TIME_FORMAT)}{suffix}"


def backups_in(folder: Path) -> list[Path]:
    """Return the finished backups of the folder with names by time, newest first."""
    try:
        names = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except OSError as error:
        found = f"{folder} ({error.strerror})"
        raise InputError("to", found=found, accepted="a folder that can be read") from error
    return sorted(names, key=lambda path: path.name, reverse=True)


def backup_age(folder: Path) -> float:
    """Return the age of the newest backup in seconds, infinity if there is none."""
    backups = backups_in(folder)
    match = _NAME.fullmatch(backups[0].name) if backups else None
    if match is None:
        return math.inf
    made_at = datetime.strptime(match[1], _TIME_FORMAT).replace(tzinfo=UTC)
    return time.time() - made_at.timestamp()


def remove_old(folder: Path, keep: int) -> list[Path]:
    """Remove all but the newest `keep` backups, and the remains of killed backups.

    Returns
    -------
    The removed backups. Files with other names stay.
    """
    old = backups_in(folder)[keep:]
    for path in old:
        path.unlink(missing_ok=True)
    for path in folder.glob(".recalib-*.unfinished"):
        with suppress(OSError), path.open("rb") as file:
            # A backup in progress holds the lock.
            flock(file, LOCK_EX | LOCK_NB)
            path.unlink()
    return old
