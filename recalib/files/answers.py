"""Write the answers to rows of one file: `.npz`, `.csv` or `.parquet`, by the name of the file.

Legend: N rows, K classes.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError
from recalib.files.atomic_write import open_atomically, write_npz
from recalib.files.base import DataSelection, Input
from recalib.files.column_names import column_names
from recalib.files.read_columns import object_array, read_table

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

#: The beginning of the names of the columns of a table; an interval has two columns.
_COLUMNS = {"probabilities": ("probability",), "sets": ("set",), "intervals": ("low", "high")}


def check_answer_path(path: Path) -> None:
    """Raise `InputError` for a name that no format has."""
    if path.suffix not in (".npz", ".csv", ".parquet"):
        accepted = "a name that ends in .npz, .csv or .parquet, for one file"
        raise InputError("output", found=str(path), accepted=accepted)


def other_columns(
    path: Path, declared: Input, selection: DataSelection, class_names: Sequence[str] | None
) -> Any:
    """Return the columns of a table that are neither scores nor labels nor weights, as they are.

    An Arrow table, such as of ids; those of a text file are texts, so that `007` stays. None for a
    file of arrays. A name that occurs twice is left out.

    Raises
    ------
    InputError: as `recalib.files.open_data`.
    """
    if class_names is not None:
        selection = replace(selection, class_names=tuple(class_names))

    def others(names: Sequence[str]) -> list[str]:
        used = column_names(names, declared, selection)
        read = {used.values, *used.columns, used.labels, used.weights}
        return [name for name, n in Counter(names).items() if n == 1 and name not in read]

    return read_table(path, others, selection.separator)


def write_answers(
    path: Path, labels: Sequence[str] | None, others: Any = None, **arrays: NDArray[Any]
) -> None:
    """Write arrays of the rows in their order, atomically.

    `.npz` has the arrays by name, and `.parquet` columns of lists. `.csv` has a column for each
    class: `probability_cat`, `set_cat`, `low_cat` and `high_cat`.

    Parameters
    ----------
    labels: names of the classes; by default their indices.
    others: columns of a table that come first in `.csv` and `.parquet`, see `other_columns`; a name
        of the answers replaces such a column.
    arrays: `probabilities` and `sets` (N, K), `intervals` (N, K, 2), `accepted` (N,).

    Raises
    ------
    InputError: as `write_npz`.
    PackageError: a `.parquet` file without pyarrow.
    """
    if path.suffix == ".npz":
        write_npz(path, **arrays)
    elif path.suffix == ".parquet":
        kept = {} if others is None else dict(zip(others.column_names, others, strict=True))
        table = pa.table(kept | {name: arrow_column(array) for name, array in arrays.items()})
        with open_atomically(path) as file:
            pq.write_table(table, file)
    else:
        names, columns = [], []
        for name, array in arrays.items():
            for k in range(array.shape[1] if array.ndim > 1 else 0):
                names += [f"{column}_{labels[k] if labels else k}" for column in _COLUMNS[name]]
            names += [name] * (array.ndim == 1)
            columns.append(array.reshape(len(array), -1).astype(object))
        own = set(names)
        for name in reversed(() if others is None else others.column_names):
            if name in own:
                continue
            names.insert(0, name)
            columns.insert(0, object_array(others[name])[:, None])
        with open_atomically(path) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            csv.writer(text).writerows([names, *np.concatenate(columns, axis=1).tolist()])
            text.detach()  # the file stays open


def arrow_column(array: NDArray[Any]) -> Any:
    """Return an array (N, ...) as a column of Arrow, (N,), of lists for further axes."""
    column = pa.array(array.ravel())
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column
