"""Receive the bytes of an upload into a blob."""

from __future__ import annotations

from collections.abc import AsyncIterable

from anyio import to_thread

from recalib.errors import InputError
from recalib.registry import BlobWriter

#: Bytes collected before a worker thread writes them: switching threads takes as long as copying
#: this much.
_BUFFER_BYTES = 2**20
#: Wall time to read and measure an upload: this much, and a second for each MiB. CSV, the slowest
#: format, takes .03 s a MiB on one core.
_READ_SECONDS, _READ_SECONDS_PER_MIB = 60.0, 1.0


async def receive(pieces: AsyncIterable[bytes], blob: BlobWriter, content: str) -> None:
    """Write the pieces to `blob`, in a worker thread.

    Parameters
    ----------
    content: what the file holds, for the error.

    Raises
    ------
    InputError: there are no bytes.
    """
    buffer = bytearray()
    async for piece in pieces:
        buffer += piece
        if len(buffer) >= _BUFFER_BYTES:
            await to_thread.run_sync(blob.write, bytes(buffer))
            buffer.clear()
    if buffer:
        await to_thread.run_sync(blob.write, bytes(buffer))
    elif blob.size == 0:
        raise InputError("body", found="nothing", accepted=f"a file with {content}")


def read_seconds(size: int) -> float:
    """Return the wall time that the reader process may take for a file of `size` bytes."""
    return _READ_SECONDS + _READ_SECONDS_PER_MIB * (size >> 20)
