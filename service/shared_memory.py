"""A folder in memory for what the processes of one server share: files that all of them map.

Not on a disk: on a full one, whoever touches a new page of such a file is ended by SIGBUS, and so
is whoever takes that one's place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["shared_folder"]

_MEMORY = Path("/dev/shm")  # noqa: S108  (what is made there has a name of its own)
_PREFIX = "recalib-shared-"
_LOCK = "lock"


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """Give a folder that goes with the block; those of servers that were killed go first."""
    place = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    _sweep(place)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place) as name:
        beginning = Path(name) / "beginning"
        with beginning.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Nobody sees it unlocked: that would mean that its server is gone.
            beginning.rename(Path(name) / _LOCK)
            yield Path(name)


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        # Its server lives and holds the lock, or it is somebody else's, or gone meanwhile.
        with contextlib.suppress(OSError), (folder / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
