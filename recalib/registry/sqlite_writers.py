"""Write transactions of one process on SQLite: one at a time, with a limit on the wait.

SQLite has one writer at a time. The threads of a process wait in a queue, and only the first of
them waits for SQLite's lock, which other processes take too. If it waits in vain, all fail
together, and until a transaction begins again the wait is short. No caller therefore waits long for
a lock that another process does not release, however many wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, RootTransaction
from sqlalchemy.exc import OperationalError, TimeoutError

from recalib.registry.engine import writing

#: How long the first writer waits for a lock of another process, and how long after a wait in vain.
_LOCK_SECONDS, _NEXT_LOCK_SECONDS = 3.5, 0.25
#: How long a writer waits for those of its process. Transactions take milliseconds; the limit is
#: for a disk that stalls.
_QUEUE_SECONDS = 30.0


class SqliteWriters:
    """Begins the write transactions of one process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = writing(engine, _LOCK_SECONDS)
        self._impatient_engine = writing(engine, _NEXT_LOCK_SECONDS)
        self._condition = threading.Condition()
        self._is_occupied = False
        #: The last wait in vain, and whether no transaction has begun since.
        self._failure: OperationalError | None = None
        self._is_locked = False

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction; commit at the end of the block, roll back on an exception.

        Raises
        ------
        OperationalError: another process has the lock.
        TimeoutError: the other writers of this process take too long.
        """
        self._enter()
        try:
            engine = self._impatient_engine if self._is_locked else self._engine
            with engine.connect() as connection, self._begin(connection):
                yield connection
        finally:
            with self._condition:
                self._is_occupied = False
                self._condition.notify()

    def _enter(self) -> None:
        with self._condition:
            before = self._failure
            if not self._condition.wait_for(
                lambda: not self._is_occupied or self._failure is not before, _QUEUE_SECONDS
            ):
                raise TimeoutError("other writers take too long")
            if self._failure is not None and self._failure is not before:
                raise OperationalError("BEGIN IMMEDIATE", None, self._failure.orig or self._failure)
            self._is_occupied = True

    def _begin(self, connection: Connection) -> RootTransaction:
        try:
            transaction = connection.begin()
        except OperationalError as error:
            with self._condition:
                self._failure, self._is_locked = error, True
                self._condition.notify_all()
            raise
        self._is_locked = False
        return transaction
