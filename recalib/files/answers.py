"""Write the answers to rows of one file: `.npz`, `.csv` or `.parquet`, by the name of the file.

Legend: N rows, K classes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError
from recalib.files.atomic_write import open_atomically, write_npz

pa = LazyModule("pyarrow")
pq = LazyModule("pyarrow.parquet")

#: The beginning of the names of the columns of a table; an interval has two columns.
_COLUMNS = {"probabilities": ("probability",), "sets": ("set",), "intervals": ("low", "high")}


def check_answer_path(path: Path) -> None:
    """Raise `InputError` for a name that no format has."""
    if path.suffix not in (".npz", ".csv", ".parquet"):
        accepted = "a name that ends in .npz, .csv or .parquet, for one file"
        raise InputError("output", found=str(path), accepted=accepted)


def write_answers(path: Path, labels: Sequence[str] | None, **arrays: NDArray[Any]) -> None:
    """Write arrays of the rows in their order, atomically.

    `.npz` has the arrays by name, and `.parquet` columns of lists. `.csv` has a column for each
    class: `probability_cat`, `set_cat`, `low_cat` and `high_cat`.

    Parameters
    ----------
    labels: names of the classes; by default their indices.
    arrays: `probabilities` and `sets` (N, K), `intervals` (N, K, 2), `accepted` (N,).

    Raises
    ------
    InputError: as `write_npz`.
    PackageError: a `.parquet` file without pyarrow.
    """
    if path.suffix == ".npz":
        write_npz(path, **arrays)
    elif path.suffix == ".parquet":
        table = pa.table({name: _lists(array) for name, array in arrays.items()})
        with open_atomically(path) as file:
            pq.write_table(table, file)
    else:
        names, columns = [], []
        for name, array in arrays.items():
            for k in range(array.shape[1] if array.ndim > 1 else 0):
                names += [f"{column}_{labels[k] if labels else k}" for column in _COLUMNS[name]]
            names += [name] * (array.ndim == 1)
            columns.append(array.reshape(len(array), -1).astype(object))
        with open_atomically(path) as file:
            text = io.TextIOWrapper(file, "utf-8", newline="")
            csv.writer(text).writerows([names, *np.concatenate(columns, axis=1).tolist()])
            text.detach()  # the file stays open


def _lists(array: NDArray[Any]) -> Any:
    column = pa.array(array.ravel())
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column
