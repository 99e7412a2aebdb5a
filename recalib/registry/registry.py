"""The registry: a database, a blob store, and transactions on them."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from recalib.errors import UnavailableError
from recalib.registry import engine as engines
from recalib.registry import migrate, notifications
from recalib.registry.blobs import BlobStore, BlobWriter
from recalib.registry.sqlite_writers import SqliteWriters
from recalib.registry.transaction import Transaction


class Registry:
    """Durable state, in SQLite or PostgreSQL and a folder or bucket of blobs.

    The constructor does not connect. Threads may share a registry, forked processes may not. A
    method raises `UnavailableError` if the database is unreachable; a later call may succeed.
    """

    def __init__(self, database_url: str, blob_url: str) -> None:
        self._engine = engines.connect_to(database_url)
        is_sqlite = self._engine.dialect.name == "sqlite"
        self._begin = SqliteWriters(self._engine).begin if is_sqlite else self._engine.begin
        self._reading = engines.reading(self._engine)
        self.blobs = BlobStore(blob_url)
        #: What is malformed in the SQLite file; None: it has not been verified yet.
        self._damage: str | None = None if is_sqlite else ""
        self._verification = threading.Lock()

    def close(self) -> None:
        """Close the pool; connections in use close when they are returned."""
        event.listen(self._engine.pool, "checkin", _close)
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Read and write; commit at the end of the block, roll back on an exception.

        Keep it short: in SQLite, all other writers wait for it, those of other processes for at
        most four seconds.

        Raises
        ------
        UnavailableError: the SQLite file is malformed, see `verify`; the first transaction of a
            process verifies it.
        """
        if self._damage is None:
            with self._verification:
                if self._damage is None:
                    self.verify()
        self._refuse_damage()
        with self._transaction(self._begin) as transaction:
            yield transaction

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read one snapshot, without blocking writers."""
        with self._transaction(self._reading.begin) as transaction:
            yield transaction

    def alias_changes(self) -> AsyncGenerator[None, None]:
        """Yield after changes of aliases by any process; `notifications.listen` has the limits."""
        return notifications.listen(self._engine.url)

    @contextmanager
    def storing(
        self,
        blob: BlobWriter,
        begin: Callable[[], AbstractContextManager[Transaction]] | None = None,
    ) -> Iterator[tuple[Transaction, str]]:
        """Commit a blob, and open the transaction that records its digest.

        If the block raises, or its transaction cannot commit, the blob is removed if it is new and
        nothing refers to it.

        Parameters
        ----------
        begin: opens the transaction, by default `transaction`.

        Raises
        ------
        UnavailableError: no space, or the database cannot be used.
        """
        with self.storing_all([blob], begin) as tx:
            yield tx, blob.digest

    @contextmanager
    def storing_all(
        self,
        blobs: Collection[BlobWriter],
        begin: Callable[[], AbstractContextManager[Transaction]] | None = None,
    ) -> Iterator[Transaction]:
        """Commit several blobs, and open one transaction that records their digests: `storing`."""
        try:
            for blob in blobs:
                blob.commit()
            with (begin or self.transaction)() as tx:
                # In one order, so that two transactions with the same blobs do not deadlock.
                for digest in sorted({blob.digest for blob in blobs}):
                    tx.blob_references.lock(digest)
                    if not self.blobs.exists(digest):
                        raise UnavailableError(f"blob {digest} was removed meanwhile; try again")
                yield tx
        except BaseException:
            for blob in blobs:
                if blob.is_new:
                    try:
                        self.remove_unreferenced(blob.digest)
                    except UnavailableError:
                        blob.abandon()  # a later sweep removes it
            raise

    def remove_unreferenced(self, digest: str) -> None:
        """Remove a blob unless a row refers to it."""
        with self.transaction() as tx:
            tx.blob_references.lock(digest)
            if not tx.blob_references.exist(digest):
                self.blobs.remove(digest)

    def sweep(self, older_than_seconds: float = 86400.0) -> int:
        """Remove what killed writers left in the blob store; return the number of files.

        It may run concurrently, in several processes.
        """
        leftovers = self.blobs.leftovers(older_than_seconds)
        for path, digest in leftovers:
            if digest is not None:
                self.remove_unreferenced(digest)
            self.blobs.remove_temporary(path)
        return len(leftovers)

    @property
    def missing_database_file(self) -> Path | None:
        """The path of the SQLite file if it does not exist yet, otherwise None."""
        url = self._engine.url
        path = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
        return None if path is None or path.exists() else path

    def verify(self) -> None:
        """Read the structure of the SQLite file; raise `UnavailableError` if it is malformed.

        Then nothing is written to it any more: writes spread the damage, and are lost with the
        file. PostgreSQL checks the pages that it reads itself.
        """
        if self._engine.dialect.name != "sqlite":
            return
        with engines.database_errors(self._engine):
            self._damage = engines.sqlite_damage(self._engine)
        self._refuse_damage()

    def in_use(self) -> bool:
        """Return whether another process, such as a server or a worker, uses the database."""
        with engines.database_errors(self._engine):
            return engines.in_use(self._engine)

    def migrate(self) -> None:
        """Create or upgrade the schema; several processes may do so at once."""
        with engines.database_errors(self._engine):
            migrate.upgrade(self._engine)

    def check(self) -> str:
        """Raise `UnavailableError` unless the database answers with a usable schema.

        A newer version's schema is usable by a program that already runs: a migration only adds,
        or removes what the previous version no longer uses. Return a remark about a newer schema,
        otherwise an empty string.
        """
        self._refuse_damage()
        with self.reading() as transaction:
            revision = migrate.current(transaction.connection)
        if revision == migrate.head():
            return ""
        migrate.reject_development_schema(revision)
        if revision is not None and not migrate.is_known(revision):
            return f"the database's schema is at {revision}, of a newer Recalib"
        raise UnavailableError(
            f"the database's schema is at {revision or 'nothing'}, this version of Recalib needs "
            f"{migrate.head()}; migrate it, or run the version that it belongs to"
        )

    @contextmanager
    def _transaction(
        self, begin: Callable[[], AbstractContextManager[Connection]]
    ) -> Iterator[Transaction]:
        try:
            with engines.database_errors(self._engine), begin() as connection:
                transaction = Transaction(connection)
                yield transaction
                transaction.events.write()
        except UnavailableError as error:
            self._damage = engines.damage_of(error.__cause__) or self._damage
            raise

    def _refuse_damage(self) -> None:
        if self._damage:
            raise UnavailableError(
                f"the database {self._engine.url.database} is malformed ({self._damage}): stop the "
                "servers and workers, and restore a backup"
            )


def _close(_connection: Any, record: Any) -> None:
    record.invalidate()  # closes the connection; the pool opens another when it needs one
