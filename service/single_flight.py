"""Run slow calls in threads; concurrent callers with the same key share one call."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Run calls on up to `max_threads` threads; a key in progress is never called twice.

    The threads are daemons, so that a call that hangs in a database driver does not prevent the
    process from exiting. Such a call occupies one thread; the other threads continue.
    """

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._running = 0
        self._queue: deque[tuple[Hashable, Future[T], Callable[[], T]]] = deque()
        self._calls: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def submit(self, key: Hashable, call: Callable[[], T]) -> Future[T]:
        """Return the future of the call in progress for `key`, or schedule `call`."""
        with self._lock:
            future = self._calls.get(key)
            if future is not None:
                return future
            future = self._calls[key] = Future()
            # Several callers share it, so none of them may cancel it.
            future.set_running_or_notify_cancel()
            self._queue.append((key, future, call))
            if self._running == self._max_threads:
                return future
            self._running += 1
        threading.Thread(target=self._work, name="single-flight", daemon=True).start()
        return future

    async def run(self, key: Hashable, call: Callable[[], T], seconds: float | None = None) -> T:
        """Return the result of `submit`; raise `TimeoutError` if it takes over `seconds`."""
        return await asyncio.wait_for(asyncio.wrap_future(self.submit(key, call)), seconds)

    def wait(self, seconds: float) -> None:
        """Wait until all calls in progress have ended, at most `seconds`."""
        with self._lock:
            calls = list(self._calls.values())
        futures.wait(calls, seconds)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._running -= 1
                    return
                key, future, call = self._queue.popleft()
            result: Any = None
            failure: BaseException | None = None
            try:
                result = call()
            except BaseException as error:  # the callers that wait must receive it
                failure = error
            with self._lock:
                del self._calls[key]
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
