"""Tables of training rows: Parquet and Arrow files, also as Hugging Face datasets write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute

from recalib.errors import InputError
from recalib.files.arrow import open_batches
from recalib.files.base import translate_errors
from recalib.files.parquet import open_table
from training.data.encoded import ImageRows

_ARROW = (".arrow", ".arrows", ".feather")


class TableImages(ImageRows):
    """Images and labels in columns.

    The image column holds bytes; structs with a field ``bytes``, as in Hugging Face datasets; or
    nested lists of uint8.
    """

    def __init__(self, paths: Sequence[Path], image: str, label: str, field: str) -> None:
        tables = [read_table(path, [image, label], field) for path in paths]
        self._columns = [_bytes(table[image]) for table in tables]
        self._ends = np.cumsum([len(column) for column in self._columns])
        self._places = [f"{path.name}: {image}" for path in paths]
        labels = [np.asarray(table[label]) for table in tables]
        self.labels = np.concatenate(labels) if len(labels) > 1 else labels[0]
        first = paths[0].name
        self.field = f"{first}{' and others' if len(paths) > 1 else ''}: {label}"
        self.names = _class_names(tables[0].schema, label)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, row: int) -> object:
        file, place = self._place(row)
        scalar = self._columns[file][place]
        return _to_array(scalar) if hasattr(scalar, "values") else scalar.as_py()

    def describe(self, row: int) -> str:
        file, place = self._place(row)
        return f"{self._places[file]}[{place}]"

    def _place(self, row: int) -> tuple[int, int]:
        """Return the number of the file, and the row in it."""
        file = int(np.searchsorted(self._ends, row, side="right"))
        return file, row - (int(self._ends[file - 1]) if file else 0)


def _bytes(column: pyarrow.ChunkedArray) -> pyarrow.ChunkedArray:
    """Return the field ``bytes`` of a struct column that has it; any other column unchanged."""
    if pyarrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        return pyarrow.compute.struct_field(column, "bytes")
    return column


def _to_array(scalar: Any) -> object:
    """Return nested lists of equal lengths as an array."""
    values = scalar.values
    if values is None:
        return None
    shape = [len(values)]
    while pyarrow.types.is_nested(values.type) and hasattr(values, "flatten"):
        rows, values = len(values), values.flatten()
        shape.append(len(values) // max(rows, 1))
    flat = values.to_numpy(zero_copy_only=False)
    # Rows of different lengths cannot be reshaped: `decode` refuses the flat array.
    return flat.reshape(shape) if flat.size == np.prod(shape) else flat


def _class_names(schema: pyarrow.Schema, label: str) -> list[str] | None:
    """Return the names of a `ClassLabel` in the metadata of Hugging Face datasets, if there."""
    try:
        info = json.loads((schema.metadata or {})[b"huggingface"])
        names = info["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if is_list and len(names) > 1 else None


def read_table(path: Path, columns: Sequence[str], field: str) -> pyarrow.Table:
    """Return some columns of a Parquet or Arrow file, at least one row.

    Raises
    ------
    InputError: not such a file, a damaged file, a missing column, or no rows.
    TooLargeError: it declares far more data than its size, as in uploads (`recalib.files`).
    """
    kind = "arrow" if path.suffix in _ARROW else "parquet"
    try:
        with path.open("rb") as stream, translate_errors(kind):
            names, table = (_arrow if kind == "arrow" else _parquet)(stream, columns)
    except InputError as error:
        found = f"{path.name}: {error.found}"
        raise type(error)(field, found=found, accepted=error.accepted) from error
    except OSError as error:
        found = f"{path.name}: {str(error).splitlines()[0]}"
        raise InputError(field, found=found, accepted=f"a file of {kind}") from error
    missing = next((column for column in columns if column not in names), None)
    if missing is not None:
        accepted = f"one of its columns: {', '.join(names)}"
        raise InputError(field, found=f"no column {missing!r}", accepted=accepted)
    if table is None or not table.num_rows:
        raise InputError(field, found=f"{path.name} without rows", accepted="one or more")
    return table


def _parquet(stream: Any, columns: Sequence[str]) -> tuple[list[str], pyarrow.Table | None]:
    file = open_table(stream, columns)
    names = file.schema_arrow.names
    return names, file.read(columns=list(columns)) if set(columns) <= set(names) else None


def _arrow(stream: Any, columns: Sequence[str]) -> tuple[list[str], pyarrow.Table | None]:
    schema, batches = open_batches(stream)
    if not set(columns) <= set(schema.names):
        return schema.names, None
    return schema.names, pyarrow.Table.from_batches(batches, schema).select(list(columns))
