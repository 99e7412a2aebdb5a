"""Writing results so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from recalib.errors import InputError

__all__ = ["digest", "write_npz"]


def digest(path: str | Path) -> str:
    """Return the SHA-256 of the file's bytes in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_npz(path: str | Path, **arrays: ArrayLike) -> None:
    """Write `arrays` under their names, whole or not at all.

    The bytes go to a temporary name in the same folder (a rename across file systems would be
    a copy), reach the disk, and only then take the name `path`.

    Raises
    ------
    InputError: an array of objects, which only a pickle could hold.
    OSError: the disk is full or the folder cannot be written; nothing is left behind.
    """
    target = Path(path)
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            np.savez(file, **plain)  # type: ignore[arg-type]  # the stub's allow_pickle
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def _plain(name: str, array: ArrayLike) -> np.ndarray:
    values = np.asarray(array)
    if values.dtype.hasobject:
        raise InputError(name, found="an array of Python objects", accepted="numbers or text")
    return values


def _sync_folder(folder: Path) -> None:
    # The rename itself lives in the folder, which has to reach the disk as well.
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
