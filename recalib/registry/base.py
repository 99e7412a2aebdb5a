"""Base class of the queries: the connection, and inserts that may violate a unique constraint."""

from __future__ import annotations

import sqlite3

from sqlalchemy import Connection, Insert, Update
from sqlalchemy.exc import IntegrityError

from recalib.errors import ExistsError


class Queries:
    """The queries of one table, on the connection of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _insert(self, statement: Insert | Update, *, conflict: str) -> None:
        """Run `statement`; raise `ExistsError` if it violates a unique constraint.

        The constraint decides, not a query beforehand: two writers may both query and see nothing.
        The savepoint is needed because PostgreSQL rejects statements after a failed statement.
        """
        try:
            with self._connection.begin_nested():
                self._connection.execute(statement)
        except IntegrityError as error:
            if _is_taken(error):
                raise ExistsError(conflict) from None
            raise


def _is_taken(error: IntegrityError) -> bool:
    if isinstance(error.orig, sqlite3.IntegrityError):
        return error.orig.sqlite_errorname in (
            "SQLITE_CONSTRAINT_UNIQUE",
            "SQLITE_CONSTRAINT_PRIMARYKEY",
        )
    return getattr(error.orig, "sqlstate", None) == "23505"
