"""Read columns of any values beside the scores and labels of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError, UnsupportedError
from recalib.files import format_of
from recalib.files.base import translate_errors
from recalib.files.csv_table import CsvTable, rows_of_block
from recalib.files.parquet import open_table

pa = LazyModule("pyarrow")


def read_columns(path: Path, names: Sequence[str], separator: str | None = None) -> dict[str, Any]:
    """Return columns (N,) of an npz, csv or parquet file by name; those of csv are texts.

    Raises
    ------
    InputError: a column is missing, or the file is damaged.
    UnsupportedError: another format.
    """
    kind = format_of(None, path.name)
    with translate_errors(kind), path.open("rb") as stream:
        if kind == "npz":
            archive = np.load(stream, allow_pickle=False)
            _check_names(names, archive.files)
            return {name: archive[name] for name in names}
        if kind == "parquet":
            file = open_table(stream, names)
            _check_names(names, file.schema_arrow.names)
            table = file.read(columns=list(names))
        elif kind == "csv":
            text = CsvTable(stream, separator)
            _check_names(names, text.names)
            types, parts = dict.fromkeys(names, pa.string()), list[Any]()
            for block in text.blocks():
                with rows_of_block(sum(part.num_rows for part in parts)):
                    parts.append(text.parse(block, list(names), types))
            table = pa.concat_tables(parts)
        else:
            accepted = "npz, csv or parquet, with columns of segments"
            raise UnsupportedError("format", found=kind, accepted=accepted)
        return {name: np.array(table.column(name).to_pylist()) for name in names}


def _check_names(names: Sequence[str], known: Sequence[str]) -> None:
    if missing := [name for name in names if name not in known]:
        found = f"no column {', '.join(missing)}"
        raise InputError("segments", found=found, accepted=f"names among {', '.join(known):.200}")
