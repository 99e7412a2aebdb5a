"""Downloads in chunks, to an open file."""

from __future__ import annotations

import hashlib
from typing import BinaryIO

from recalib.client.progress import Report


class Download:
    """A response body of `size` bytes that is written to `file`.

    `digest` is the SHA-256 of the last attempt, in hexadecimal.
    """

    def __init__(self, file: BinaryIO, size: int, report: Report) -> None:
        self._file = file
        self._size = size
        self._report = report
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes of this attempt."""
        return self._hash.hexdigest()

    def start(self) -> None:
        """Discard the bytes of an earlier attempt."""
        self._file.seek(0)
        self._file.truncate()
        self._hash = hashlib.sha256()

    def write(self, chunk: bytes) -> None:
        """Append a chunk, and report the number of bytes received."""
        self._file.write(chunk)
        self._hash.update(chunk)
        received = self._file.tell()
        text = f"{received / 1e6:.1f} of {self._size / 1e6:.1f} MB"
        self._report(min(1.0, received / self._size), text)
