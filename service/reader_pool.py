"""The reader processes of a server process, and a share of them for each caller.

A caller, the key of the request, has one call in progress; its others wait in line. Calls on files
that unpack to many bytes have a process of their own. So neither many files of one caller nor a
small file that takes a minute to read keeps others from theirs.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from queue import LifoQueue
from typing import Any, Literal

from recalib.errors import LimitedError
from service.access.authenticator import current_principal
from service.metrics import LIMITED
from service.reader_process import Call, ReaderProcess

#: Calls of one caller that run or wait.
_MAX_UPLOADS, _MAX_REFERENCES = 32, 4
_RETRY_SECONDS = 5
#: Large files take long anyway; the server and small files have the processor first.
_SLOW_NICENESS = 10


@cache
def reader_pool(purpose: Literal["uploads", "references"] = "uploads") -> ReaderPool:
    """Return a pool of this server process.

    Data sets by reference may take hours to read, so uploads have another pool.
    """
    pool = (
        ReaderPool(max_calls=_MAX_REFERENCES, field="uri")
        if purpose == "references"
        else ReaderPool()
    )
    atexit.register(pool.close)  # by then its threads have ended
    return pool


class ReaderPool:
    """Three processes at most: two for quick calls and one for slow ones.

    A process starts when a call finds none idle. Waiting calls hold no thread.

    Parameters
    ----------
    max_calls: calls of one caller that run or wait.
    field: as of `ReaderProcess`.
    """

    def __init__(
        self, max_calls: int = _MAX_UPLOADS, field: Literal["data", "uri"] = "data"
    ) -> None:
        self._max_calls = max_calls
        self._quick, self._slow = _Readers(2, field), _Readers(1, field, _SLOW_NICENESS)
        # By event loop too, since a lock belongs to one.
        self._lines: dict[tuple[object, str], _Line] = {}

    @property
    def calls(self) -> int:
        """Calls that run or wait."""
        return sum(line.calls for line in self._lines.values())

    @property
    def pids(self) -> list[int]:
        """Process IDs of the children that run."""
        every = (*self._quick.readers, *self._slow.readers)
        return [pid for reader in every if (pid := reader.pid) is not None]

    async def run(
        self,
        function: Callable[..., Any],
        *,
        seconds: float,
        is_slow: bool = False,
        **arguments: Any,
    ) -> Any:
        """Call `function` in a child and return its result.

        Parameters
        ----------
        function: a function of a module; its arguments and its result are JSON values.
        seconds: wall time after which the child is killed.
        is_slow: whether the call may take more than a second or two.

        Raises
        ------
        InputError, UnavailableError: as `ReaderProcess.run`.
        LimitedError: too many calls of the caller run or wait already.
        """
        readers = self._slow if is_slow else self._quick
        with self._line(current_principal().name) as line:
            async with line.lock:
                return await readers.run(Call(function, seconds, arguments))

    def close(self) -> None:
        """End the children; another call starts another."""
        for readers in (self._quick, self._slow):
            for reader in readers.readers:
                reader.close()

    @contextmanager
    def _line(self, caller: str) -> Iterator[_Line]:
        key = (asyncio.get_running_loop(), caller)
        line = self._lines.setdefault(key, _Line())
        if line.calls >= self._max_calls:
            LIMITED.labels("files").inc()
            raise LimitedError(f"{line.calls} files of {caller!r} are read or wait", _RETRY_SECONDS)
        line.calls += 1
        try:
            yield line
        finally:
            line.calls -= 1
            if not line.calls:
                del self._lines[key]


class _Line:
    """The calls of one caller."""

    def __init__(self) -> None:
        self.calls = 0
        self.lock = asyncio.Lock()


class _Readers:
    """Processes for calls of any caller, in the order of their arrival."""

    def __init__(self, count: int, field: Literal["data", "uri"], niceness: int = 0) -> None:
        self.readers = [ReaderProcess(field=field, niceness=niceness) for _ in range(count)]
        # A process that runs is taken before one that would have to start.
        self._idle: LifoQueue[ReaderProcess] = LifoQueue()
        for reader in self.readers:
            self._idle.put(reader)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="reader-process")

    async def run(self, call: Call) -> Any:
        future = self._threads.submit(contextvars.copy_context().run, self._run, call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():  # it runs already, or has ended
                for reader in self.readers:
                    reader.cancel(call)
            raise

    def _run(self, call: Call) -> Any:
        reader = self._idle.get()
        try:
            return reader.run(call)
        finally:
            self._idle.put(reader)
