"""A folder in memory for files that all processes of a server map.

It is not on a disk: when the disk is full, a process that touches a new page of such a file is
killed by SIGBUS, and so is the process that replaces it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108  (each folder has a random name)
_PREFIX = "recalib-shared-"
_LOCK = "lock"


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Yield a folder that is removed after the block; remove those of killed servers first."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _sweep(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        unlocked = Path(name) / "unlocked"
        with unlocked.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Locked before it has its name: an unlocked file means that its server is gone.
            unlocked.rename(Path(name) / _LOCK)
            yield Path(name)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        # OSError: its server runs and holds the lock, another user owns it, or it is gone.
        with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
