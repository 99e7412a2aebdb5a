"""The registry's tables as JSON lines: a row a line, an array in the order of the columns.

Tables are read as they are in the database, not as this version would have them, so that an older
schema can be read as well. Text of JSON columns is kept as it stands, and numbers are written with
as many digits as they have: what is read from one database is the same in the other.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    Boolean,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    Text,
    cast,
    column,
    func,
    insert,
    inspect,
    select,
    table,
    text,
)

from recalib.errors import CorruptError
from recalib.registry.tables import METADATA

__all__ = ["columns_of", "fill", "read_rows", "tables_of"]

#: Rows that are in memory at once; those of calibrators may be megabytes each.
_ROWS = 500


def tables_of(connection: Connection) -> list[Table]:
    """Return our tables as they are in the database, those that others refer to first."""
    found = MetaData()
    there = set(inspect(connection).get_table_names())
    found.reflect(connection, only=sorted(there & set(METADATA.tables)))
    return found.sorted_tables


def columns_of(of: Table) -> list[str]:
    """Return the names of a table's columns, in the order of its rows."""
    return [one.name for one in of.columns]


def read_rows(connection: Connection, of: Table) -> Iterator[bytes]:
    """Yield a table's rows as lines, sorted by its key."""
    chosen = [cast(one, Text) if isinstance(one.type, JSON) else one for one in of.columns]
    statement = select(*chosen).order_by(*of.primary_key.columns)
    found = connection.execution_options(stream_results=True, yield_per=_ROWS).execute(statement)
    for row in found:
        yield msgspec.json.encode(list(row)) + b"\n"


def fill(connection: Connection, of: Table, names: list[str], lines: Iterable[bytes]) -> int:
    """Add rows to an empty table and return how many; `CorruptError` for lines that are none.

    Parameters
    ----------
    names: the columns that the lines hold.
    """
    if unknown := sorted(set(names) - set(columns_of(of))):
        raise CorruptError(f"the table {of.name} has no column {', '.join(unknown)}")
    decoders = [_decoder(of, name) for name in names]
    # Without types: what a driver knows to send is right for both, JSON as its text.
    bare = insert(table(of.name, *(column(name) for name in names)))
    rows = (_decoded(line, names, decoders, of.name) for line in lines)
    count = 0
    while batch := list(islice(rows, _ROWS)):
        connection.execute(bare, batch)
        count += len(batch)
    _go_on_counting(connection, of)
    return count


def _decoder(of: Table, name: str) -> Callable[[Any], Any] | None:
    kind = of.columns[name].type
    if isinstance(kind, LargeBinary):
        return base64.b64decode
    return bool if isinstance(kind, Boolean) else None


def _decoded(
    line: bytes, names: list[str], decoders: list[Callable[[Any], Any] | None], of: str
) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(line, type=list)
        return {
            name: value if decode is None or value is None else decode(value)
            for name, value, decode in zip(names, values, decoders, strict=True)
        }
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise CorruptError(f"a row of {of} cannot be read: {error}") from error


def _go_on_counting(connection: Connection, of: Table) -> None:
    """Let PostgreSQL number new rows after those that brought their numbers along."""
    if connection.dialect.name != "postgresql":
        return
    for one in of.primary_key.columns:
        sequence = connection.scalar(select(func.pg_get_serial_sequence(of.name, one.name)))
        highest = connection.scalar(select(func.max(one))) if sequence else None
        if highest is not None:
            connection.execute(
                text("SELECT setval(CAST(:sequence AS regclass), :highest)"),
                {"sequence": sequence, "highest": highest},
            )
