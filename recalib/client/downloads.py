"""Downloads in chunks, to an open file."""

from __future__ import annotations

import hashlib
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from recalib.client.errors import InvalidResponseError
from recalib.client.operations import Flow, Request, Session
from recalib.client.progress import Progress, Report, progress_reporter
from recalib.client.retry import send_checked


def download(
    session: Session,
    place: str,
    target: Path,
    *,
    size: int,
    digest: str | None,
    title: str,
    progress: Progress,
    timeout: float,
) -> Flow[None]:
    """Write the body of a GET to a file, atomically and in constant memory.

    Raises
    ------
    InputError: the file cannot be written.
    InvalidResponseError: the body has another digest.
    """
    from recalib.files.atomic_write import open_atomically

    with progress_reporter(title, progress) as report, open_atomically(target) as file:
        sink = Download(file, size, report)
        request = Request("GET", place, sink=sink)
        response = yield from send_checked(session, request, timeout=timeout)
        if sink.digest != digest:
            raise InvalidResponseError(response, f"has other bytes than {digest}")


def save(session: Session, place: str, destination: str | PathLike[str]) -> Flow[int]:
    """Write the body of a GET, which fits into memory, to a file; return its size in bytes."""
    from recalib.files import write_atomically

    response = yield from send_checked(session, Request("GET", place))
    write_atomically(Path(destination), response.body)
    return len(response.body)


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
