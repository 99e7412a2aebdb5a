"""Dump and load tables as JSON lines: one array per row, in the order of the columns.

Tables are reflected from the database, not taken from this version's metadata, so an older schema
can be read too. JSON columns are dumped as text and numbers with all digits: SQLite and PostgreSQL
give the same values.
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

#: Rows in memory at once; a row of `calibrators` may have megabytes.
_ROWS = 500


def tables_of(connection: Connection) -> list[Table]:
    """Return the tables of the registry in the database, referenced tables first."""
    metadata = MetaData()
    existing = set(inspect(connection).get_table_names())
    metadata.reflect(connection, only=sorted(existing & set(METADATA.tables)))
    return metadata.sorted_tables


def columns_of(source: Table) -> list[str]:
    """Return the column names of a table, in order."""
    return [column.name for column in source.columns]


def dump_lines(connection: Connection, source: Table) -> Iterator[bytes]:
    """Yield the rows of a table as lines, sorted by primary key."""
    columns = [cast(c, Text) if isinstance(c.type, JSON) else c for c in source.columns]
    statement = select(*columns).order_by(*source.primary_key.columns)
    rows = connection.execution_options(stream_results=True, yield_per=_ROWS).execute(statement)
    for row in rows:
        yield msgspec.json.encode(list(row)) + b"\n"


def fill(connection: Connection, target: Table, names: list[str], lines: Iterable[bytes]) -> int:
    """Load rows into an empty table, return their number; `CorruptError` for a bad line.

    Parameters
    ----------
    names: the columns of the lines.
    """
    if unknown := sorted(set(names) - set(columns_of(target))):
        raise CorruptError(f"the table {target.name} has no column {', '.join(unknown)}")
    decoders = [_decoder(target, name) for name in names]
    # Without column types: JSON is sent as text, and the drivers convert all other values.
    statement = insert(table(target.name, *(column(name) for name in names)))
    rows = (_decode(line, names, decoders, target.name) for line in lines)
    count = 0
    while batch := list(islice(rows, _ROWS)):
        connection.execute(statement, batch)
        count += len(batch)
    _reset_sequences(connection, target)
    return count


def _decoder(target: Table, name: str) -> Callable[[Any], Any] | None:
    kind = target.columns[name].type
    if isinstance(kind, LargeBinary):
        return base64.b64decode
    return bool if isinstance(kind, Boolean) else None


def _decode(
    line: bytes, names: list[str], decoders: list[Callable[[Any], Any] | None], table_name: str
) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(line, type=list)
        return {
            name: value if decode is None or value is None else decode(value)
            for name, value, decode in zip(names, values, decoders, strict=True)
        }
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise CorruptError(f"a row of {table_name} cannot be read: {error}") from error


def _reset_sequences(connection: Connection, target: Table) -> None:
    """Set the sequences of PostgreSQL behind the loaded keys."""
    if connection.dialect.name != "postgresql":
        return
    for key in target.primary_key.columns:
        sequence = connection.scalar(select(func.pg_get_serial_sequence(target.name, key.name)))
        highest = connection.scalar(select(func.max(key))) if sequence else None
        if highest is not None:
            connection.execute(
                text("SELECT setval(CAST(:sequence AS regclass), :highest)"),
                {"sequence": sequence, "highest": highest},
            )
