"""Read columns of any values beside the scores and labels of a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError, UnsupportedError
from recalib.files import format_of
from recalib.files.arrow import open_batches
from recalib.files.base import translate_errors
from recalib.files.csv_table import CsvTable, rows_of_block
from recalib.files.json_lines import read_members
from recalib.files.parquet import open_table

pa = LazyModule("pyarrow")


def read_columns(path: Path, names: Sequence[str], separator: str | None = None) -> dict[str, Any]:
    """Return columns (N,) of a file, as `named_columns`."""
    with path.open("rb") as stream:
        return named_columns(stream, format_of(None, path.name), names, separator)


def named_columns(
    stream: BinaryIO, format: str, names: Sequence[str], separator: str | None = None
) -> dict[str, Any]:
    """Return columns (N,) of an npz file or a table by name; those of csv are texts.

    A csv column of 0.0, 1.0, ... is of whole numbers, as pandas writes integers beside a null.

    Raises
    ------
    InputError: a column is missing, or the file is damaged.
    UnsupportedError: another format.
    """

    def choose(known: Sequence[str]) -> list[str]:
        _check_names(names, known)
        return list(dict.fromkeys(names))

    if format == "npz":
        with translate_errors("npz"), np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in choose(archive.files)}
    if (table := _table_of(stream, format, choose, separator)) is None:
        accepted = "npz, csv, jsonl, parquet or arrow, with columns of segments"
        raise UnsupportedError("format", found=format, accepted=accepted)
    columns = {name: object_array(table.column(name)) for name in names}
    return {name: _whole(texts) for name, texts in columns.items()} if format == "csv" else columns


def _whole(texts: Any) -> Any:
    """Return texts (N,) without ".0", if all that are not empty end with it."""
    known = [text for text in texts if text]
    if not all(re.fullmatch(r"-?[0-9]+\.0", text) for text in known):
        return texts
    return np.array([text and text.removesuffix(".0") for text in texts], dtype=object)


def read_table(
    path: Path, choose: Callable[[Sequence[str]], list[str]], separator: str | None = None
) -> Any:
    """Return columns of a table as an Arrow table; those of csv are texts, so that `007` stays.

    None for a file of arrays.

    Parameters
    ----------
    choose: returns the names of columns to read, of those that the file has.

    Raises
    ------
    InputError: the file is damaged.
    """
    with path.open("rb") as stream:
        return _table_of(stream, format_of(None, path.name), choose, separator)


def _table_of(
    stream: BinaryIO,
    format: str,
    choose: Callable[[Sequence[str]], list[str]],
    separator: str | None,
) -> Any:
    with translate_errors(format):
        if format == "csv":
            text, parts = CsvTable(stream, separator), list[Any]()
            names = choose(text.names)
            types = dict.fromkeys(names, pa.string())
            # Arrow would read all columns if none is named.
            for block in text.blocks() if names else ():
                with rows_of_block(sum(part.num_rows for part in parts)):
                    parts.append(text.parse(block, names, types))
            return pa.concat_tables(parts) if names else pa.table({})
        if format == "parquet":
            names = choose(open_table(stream, ()).schema_arrow.names)
            return open_table(stream, names).read(names)
        if format == "arrow":
            schema, batches = open_batches(stream)
            names = choose(schema.names)
            return pa.Table.from_batches([batch.select(names) for batch in batches])
        if format == "jsonl":
            return read_members(stream, choose)
    return None


def object_array(column: Any) -> NDArray[np.object_]:
    """Return a column of Arrow as objects (N,), also if these are lists."""
    return np.fromiter(column.to_pylist(), object, len(column))


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    if missing := [name for name in names if name not in known]:
        found = f"no column {', '.join(missing)}"
        raise InputError("segments", found=found, accepted=f"names among {', '.join(known):.200}")
