"""Base class of the queries: the connection, and how they read and write."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Executable, Insert, Select, Table, Update
from sqlalchemy.exc import IntegrityError

from recalib.core.resource_names import is_name
from recalib.errors import ExistsError, NotFoundError

R = TypeVar("R")


def columns_without(table: Table, *names: str) -> list[Column[Any]]:
    """Return the columns of a table but those of these names."""
    return [column for column in table.c if column.name not in names]


def select_page(
    statement: Select[Any],
    column: Column[Any],
    limit: int,
    after: Any = None,
    *,
    newest_first: bool = False,
) -> Select[Any]:
    """Return the query of up to `limit` rows by `column`, beyond the value `after` if it is given.

    Parameters
    ----------
    newest_first: from the largest value to the smallest.
    """
    page = statement.order_by(column.desc() if newest_first else column).limit(limit)
    if after is None:
        return page
    return page.where(column < after if newest_first else column > after)


class Queries:
    """The queries of one table, on the connection of one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _find(self, record: Callable[..., R], statement: Executable) -> R | None:
        """Return the record of the row of a query, made of its columns; None without a row."""
        row = self._connection.execute(statement).one_or_none()
        return None if row is None else record(**row._mapping)

    def _get(
        self, record: Callable[..., R], statement: Executable, kind: str, name: str, hint: str = ""
    ) -> R:
        """Return the record of a row by its name; `NotFoundError` without one, or if it is none."""
        resource = self._find(record, statement) if is_name(name) else None
        if resource is None:
            raise NotFoundError(kind, name, hint=hint)
        return resource

    def _read(self, record: Callable[..., R], statement: Executable) -> list[R]:
        """Return the records of the rows of a query, each made of its columns."""
        return [record(**row._mapping) for row in self._connection.execute(statement)]

    def _execute(self, statement: Executable) -> int:
        """Run a statement; return the number of rows that it wrote."""
        return self._connection.execute(statement).rowcount

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
