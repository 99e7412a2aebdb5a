"""Slow calls on threads of their own, one at a time for each key."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, Generic, TypeVar

__all__ = ["Flights"]

T = TypeVar("T")


class Flights(Generic[T]):
    """Runs calls on up to `most` threads; who asks for a key that is under way gets that call's.

    The threads are daemons: one that hangs in a database driver must not keep the process from
    ending. A call that hangs takes its thread with it, and nobody else's while there are others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._running = 0
        self._waiting: deque[tuple[Hashable, Future[T], Callable[[], T]]] = deque()
        self._flights: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def of(self, key: Hashable, act: Callable[[], T]) -> Future[T]:
        """Return the outcome of the call under way for `key`, else of `act`, called soon."""
        with self._lock:
            flight = self._flights.get(key)
            if flight is not None:
                return flight
            flight = self._flights[key] = Future()
            # Those who wait for it share it, so that none of them may cancel it.
            flight.set_running_or_notify_cancel()
            self._waiting.append((key, flight, act))
            if self._running == self._most:
                return flight
            self._running += 1
        threading.Thread(target=self._work, name="flight", daemon=True).start()
        return flight

    def settle(self, seconds: float) -> None:
        """Wait until all calls under way have ended, but not for longer than this."""
        with self._lock:
            flights = list(self._flights.values())
        wait(flights, seconds)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                key, flight, act = self._waiting.popleft()
            outcome: Any = None
            failure: BaseException | None = None
            try:
                outcome = act()
            except BaseException as error:  # whoever waits must learn of it, whatever it is
                failure = error
            with self._lock:
                del self._flights[key]
            if failure is None:
                flight.set_result(outcome)
            else:
                flight.set_exception(failure)
