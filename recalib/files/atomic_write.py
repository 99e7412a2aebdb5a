"""Write files atomically: a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import ArrayLike

from recalib.errors import InputError


def digest(path: str | Path) -> str:
    """Return the SHA-256 of the file's bytes in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_npz(path: str | Path, **arrays: ArrayLike) -> None:
    """Write `arrays` under their names, atomically.

    Raises
    ------
    InputError: an array contains Python objects; or as `write_atomically`.
    """
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    with open_atomically(Path(path)) as file:
        np.savez(file, **plain)  # type: ignore[arg-type]  # the stub's allow_pickle


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write `data` atomically.

    Raises
    ------
    InputError: the folder does not exist or cannot be written, or the disk is full. No temporary
        file remains.
    """
    with open_atomically(Path(path)) as file:
        file.write(data)


@contextmanager
def open_atomically(target: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file, and rename it to `target` at the end.

    It is in the same folder, because a rename across file systems would be a copy. The bytes are
    synced before the rename. Errors are those of `write_atomically`.
    """
    if not target.name:
        raise InputError("output", found=repr(str(target)), accepted="the name of a file")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        sync(target.parent)  # the rename is an entry of the folder
    except BaseException as error:
        with suppress(OSError):  # if it could not be created, this fails for the same reason
            temporary.unlink()
        if isinstance(error, OSError):
            raise InputError(
                "output",
                found=f"{target} ({error.strerror})",
                accepted="a file that can be written",
            ) from error
        raise


def sync(path: str | Path) -> None:
    """Write the content of a file, or the entries of a folder, to the disk."""
    if not hasattr(os, "O_DIRECTORY"):  # Windows opens no folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(name: str, array: ArrayLike) -> np.ndarray:
    values = np.asarray(array)
    if values.dtype.hasobject:
        raise InputError(name, found="an array of Python objects", accepted="numbers or text")
    return values
