"""Encryption of backups in the age format (https://age-encryption.org/v1), by `pyrage`.

age encrypts a stream in authenticated chunks, the last of which is marked: a byte that is changed,
moved, missing or appended is detected. The key is an age identity that only the operator and the
backup job have. Its public part, the recipient, is enough to write a file that the key decrypts, so
it stays as secret as the key, and no file contains it. A backup that decrypts was therefore written
by a holder of the key.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from recalib.errors import CorruptError, InputError, UnavailableError

if TYPE_CHECKING:
    from pyrage.x25519 import Identity

#: The first bytes of every age file.
MAGIC = b"age-encryption.org/v1\n"
_KEY_PREFIX = "AGE-SECRET-KEY-1"
_MAX_KEY_FILE_BYTES = 65_536


def new_key() -> str:
    """Return a new key, as `age-keygen` writes it."""
    from pyrage import x25519

    return str(x25519.Identity.generate())


def read_key(path: Path) -> Identity:
    """Return the key in a file of `recalib backup-key` or `age-keygen`.

    Raises
    ------
    InputError: the file cannot be read, or does not hold exactly one key.
    """
    from pyrage import IdentityError, x25519

    accepted = "a file with one key, such as `recalib backup-key` prints"
    try:
        with path.open(encoding="ascii") as file:
            lines = file.read(_MAX_KEY_FILE_BYTES).splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no text"
        raise InputError("key_file", found=f"{path} ({reason})", accepted=accepted) from error
    keys = [line.strip() for line in lines if line.startswith(_KEY_PREFIX)]
    if len(keys) != 1:
        raise InputError("key_file", found=f"{path} with {len(keys)} keys", accepted=accepted)
    try:
        return x25519.Identity.from_str(keys[0])
    except IdentityError as error:
        found = f"{path}, whose key is damaged"
        raise InputError("key_file", found=found, accepted=accepted) from error


@contextmanager
def encrypted(target: IO[bytes], key: Identity) -> Iterator[IO[bytes]]:
    """Yield a stream; what is written to it is encrypted to `target`, never stored in the clear.

    Raises
    ------
    OSError: `target` cannot be written.
    """
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as sink, ThreadPoolExecutor(1) as pool:
        result = pool.submit(_encrypt, read_end, target, key)
        try:
            yield sink
            sink.close()
        except BrokenPipeError:
            # The thread has stopped reading: its error, below, is the cause.
            result.result()
            raise
        finally:
            # The thread ends at the end of the stream.
            with suppress(BrokenPipeError):
                sink.close()
        result.result()


def _encrypt(read_end: int, target: IO[bytes], key: Identity) -> None:
    from pyrage import encrypt_io

    with os.fdopen(read_end, "rb") as source:
        guarded = _Writer(target)
        try:
            encrypt_io(source, guarded, [key.to_public()])
        except Exception as error:
            raise guarded.error or error from None


@contextmanager
def decrypted(source: IO[bytes], name: str, key: Identity) -> Iterator[IO[bytes]]:
    """Yield a temporary file with the content of an encrypted file, all of it authenticated.

    Parameters
    ----------
    name: the name of the file in errors.

    Raises
    ------
    CorruptError: the file is changed or incomplete, or encrypted with another key.
    UnavailableError: the temporary file cannot be written.
    """
    from pyrage import DecryptError, decrypt_io

    # The file has no name: a killed process leaves nothing.
    with tempfile.TemporaryFile() as plain:
        guarded = _Writer(plain)
        try:
            decrypt_io(source, guarded, [key])
        except (DecryptError, OSError) as error:
            if guarded.error is not None:
                raise UnavailableError(
                    f"the decrypted copy of {name} does not fit into {tempfile.gettempdir()} "
                    f"({guarded.error.strerror}); TMPDIR names another folder"
                ) from None
            raise CorruptError(
                f"{name} cannot be decrypted: it is changed, incomplete, or encrypted with "
                f"another key ({error})"
            ) from error
        plain.seek(0)
        yield plain


class _Writer:
    """A file for pyrage, which reports errors of writing as its own; this keeps the original."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._file.flush()
