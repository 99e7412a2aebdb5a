"""A small file system for tests that fill a disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["fill", "small_disk"]


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a file system in memory at `folder`; skip the test if that is not permitted."""
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() != 0 or mount is None or umount is None:
        pytest.skip("only root may mount a file system to fill")
    folder.mkdir()
    command = [mount, "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine mounts no tmpfs, not even for root")
    try:
        yield folder
    finally:
        subprocess.run([umount, str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Fill the disk; returns the file that takes the space."""
    filler = disk / "filler"
    for size in (2**20, 4096):
        with contextlib.suppress(OSError), filler.open("ab", 0) as file:
            while file.write(bytes(size)) == size:
                pass
    return filler
