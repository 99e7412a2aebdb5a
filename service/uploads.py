"""Receive the bytes of an upload into a blob, and read them in a reader process."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable
from functools import partial
from typing import Any

from anyio import to_thread
from pydantic import BaseModel

from recalib.contract.jobs import Job
from recalib.errors import InputError
from recalib.registry import BlobWriter, Registry, Transaction
from service.idempotency import run_once
from service.reader_pool import reader_pool

#: Bytes collected before a worker thread writes them: switching threads takes as long as copying
#: this much.
_BUFFER_BYTES = 2**20
#: Wall time to read and measure an upload: this much, which a child may need to start on a busy
#: machine, and a second for each MiB. CSV, the slowest
#: format, takes .03 s a MiB on one core.
_READ_SECONDS, _READ_SECONDS_PER_MIB = 60.0, 1.0
#: Numbers of a file that is quick to read. They take a second on a slow core.
QUICK_NUMBERS = 2_000_000


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


def store_once(
    store: Registry,
    blob: BlobWriter,
    key: str | None,
    scope: str,
    request: BaseModel,
    act: Callable[[Transaction, str], Job],
) -> Job:
    """Store the file of an upload, and return the job that `act` enqueues for its digest.

    Idempotent: the other parameters are those of `run_once`.
    """
    with store.storing(blob) as (tx, digest):
        job = run_once(tx, key, scope, request, 202, Job, partial(act, tx, digest))
    if key is not None and blob.is_new:
        # A repeated request whose job has ended: nothing needs its file.
        store.remove_unreferenced(digest)
    return job


def read_seconds(size: int) -> float:
    """Return the wall time that the reader process may take for a file of `size` bytes."""
    return _READ_SECONDS + _READ_SECONDS_PER_MIB * (size >> 20)


async def read_upload(
    function: Callable[..., Any],
    blob: BlobWriter,
    count: Callable[..., int],
    arguments: dict[str, Any],
    **more: Any,
) -> Any:
    """Call `function` on the URL of an upload in a reader process; return its result.

    Parameters
    ----------
    count: returns the numbers that the file unpacks to, as its header says; called first, so that
        files that take long do not keep others from theirs.
    arguments: of both functions.
    more: further arguments of `function`.

    Raises
    ------
    InputError, UnavailableError, LimitedError: as `ReaderPool.run`.
    """
    pool, url = reader_pool(), await to_thread.run_sync(blob.temporary_url)
    numbers = await pool.run(count, seconds=_READ_SECONDS, url=url, **arguments)
    is_slow, seconds = numbers > QUICK_NUMBERS, read_seconds(blob.size)
    return await pool.run(function, seconds=seconds, is_slow=is_slow, url=url, **arguments, **more)
