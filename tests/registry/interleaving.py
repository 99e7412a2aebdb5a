"""Run a second transaction between two statements of a first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import event, func, select, text

from recalib.registry import Registry, Transaction

__all__ = ["Interleaved", "wait_for_lock"]

_SECONDS = 60.0


class Interleaved:
    """A function with a transaction of its own, in a thread.

    Parameters
    ----------
    act: the function.
    """

    def __init__(self, registry: Registry, act: Callable[[], object]) -> None:
        self._registry, self._act = registry, act
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start_after_write(self, tx: Transaction) -> None:
        """Start after the next statement of `tx` that locks or changes rows.

        `tx` continues when the function has ended, or waits for a lock.
        """

        def start(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            if not self._thread.ident and not (
                statement.startswith("SELECT") and " FOR " not in statement
            ):
                self._thread.start()
                wait_for_lock(self._registry, self._thread)

        event.listen(tx.connection, "after_cursor_execute", start)

    def finish(self) -> None:
        """Wait for the end; raise what the function has raised."""
        self._thread.join(_SECONDS)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._act()
        except BaseException as error:
            self._failure = error


def wait_for_lock(registry: Registry, thread: threading.Thread) -> None:
    """Wait until a thread has ended or its transaction waits for a lock.

    SQLite has one writer at a time, and does not report who waits: it returns at once.
    """
    waiting = select(func.count()).select_from(text("pg_locks WHERE NOT granted"))
    deadline = time.monotonic() + _SECONDS
    with registry.reading() as tx:
        while (
            tx.connection.dialect.name == "postgresql"
            and thread.is_alive()
            and not tx.connection.scalar(waiting)
        ):
            assert time.monotonic() < deadline
            thread.join(0.005)
