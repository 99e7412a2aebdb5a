"""Batches of data engines: Arrow, pandas and polars tables, columns, and NumPy dictionaries.

Engines call a function for each batch and expect the type of the batch back: Spark streams Arrow
record batches, Ray passes tables, frames or dictionaries, Dask pandas frames, Polars its frames or
series, and DuckDB Arrow columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError
from recalib.files import DataSelection, Input
from recalib.files.column_names import Names, column_names, label_name
from recalib.files.tables import Columns

pa = LazyModule("pyarrow")
pd = LazyModule("pandas")
pl = LazyModule("polars")

Matrix = NDArray[Any]

#: Rows that are converted at a time; offsets of lists have 32 bits.
_MAX_ROWS = 1 << 16
_ACCEPTED = (
    "a table, a record batch, a column of lists or a reader of Arrow, a frame of pandas or polars,"
    " a series of polars, a dictionary of arrays, or an iterator of these"
)


def map_stream(data: Any, function: Callable[[Any], Any]) -> Any:
    """Return `function(data)`, or for a stream of batches the stream of results.

    A `RecordBatchReader` gives a reader. An iterator gives an iterator.
    """
    if _is_arrow(data, "RecordBatchReader"):
        schema = function(data.schema.empty_table()).schema
        return pa.RecordBatchReader.from_batches(schema, map(function, data))
    if isinstance(data, Iterator):
        return map(function, data)
    return function(data)


def read_parts(
    data: Any,
    declared: Input,
    *,
    column: str | Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
) -> Iterator[tuple[Matrix, NDArray[Any] | None]]:
    """Yield the scores (n, K) and the labels (n,), None without the column, of parts of a batch.

    A batch without rows has one part, (0, 0).

    Parameters
    ----------
    declared: whether the scores are logits or probabilities.
    column: the name of the column of lists, or the names of one column for each class. By default
        a column with the name `declared`, otherwise columns of `class_names`, otherwise numbered
        columns as in files.
    class_names: names of the classes.

    Raises
    ------
    InputError: columns are missing or have another type, a null, or a batch of an unknown type.
    """
    if isinstance(data, Mapping):
        names = _select(list(data), declared, column, class_names)
        scores = _stack(data[names.values]) if names.values else None
        if scores is None:
            scores = np.stack([data[name] for name in names.columns], axis=-1)
        yield scores, None if names.labels is None else np.asarray(data[names.labels])
        return
    if _is_column(data):
        table = pa.table({declared: data if _is_arrow(data) else data.to_arrow()})
        names = Names(declared, (), None)
    else:
        table, names = _table(data, lambda names: _select(names, declared, column, class_names))
    if not table.num_rows:
        kind = table.schema.field(0).type
        is_unknown = pa.types.is_null(kind)  # pandas knows no type of lists without rows
        dtype = None if is_unknown else Columns(table.schema, names, declared).dtype
        yield np.zeros((0, 0), dtype), None
        return
    selected = Columns(table.schema, names, declared)
    for batch in table.to_batches(max_chunksize=_MAX_ROWS):
        if batch.num_rows:
            scores, labels, _ = selected.arrays(batch, 0)
            yield scores, labels


def add_lists(data: Any, name: str, parts: Iterable[Matrix]) -> Any:
    """Return `data` with the column `name` of the rows of all parts; a column returns a column.

    Parameters
    ----------
    parts: arrays (n, K), in the order of the rows.
    """
    matrices = list(parts)
    if isinstance(data, Mapping):
        return {**data, name: np.concatenate(matrices)}
    lists = pa.chunked_array([_lists(matrix) for matrix in matrices])
    if _is_column(data):
        if not _is_arrow(data):
            return pl.Series(data.name, pl.from_arrow(lists))
        return lists if _is_arrow(data, "ChunkedArray") else lists.combine_chunks()
    if _is_arrow(data):
        if _is_arrow(data, "RecordBatch"):
            lists = lists.combine_chunks()
        if name in data.schema.names:
            return data.set_column(data.schema.names.index(name), name, lists)
        return data.append_column(name, lists)
    if hasattr(data, "with_columns"):
        return data.with_columns(pl.from_arrow(lists).alias(name))
    return data.assign(**{name: pd.arrays.ArrowExtensionArray(lists)})


def single_value(like: Any, name: str, value: bytes) -> Any:
    """Return a table of one row and one column of the type of `like`, by default a record batch."""
    if isinstance(like, Mapping):
        return {name: np.array([value], object)}
    if _is_arrow(like, "Table"):
        return pa.table({name: [value]})
    if hasattr(like, "with_columns"):
        return pl.DataFrame({name: [value]})
    if hasattr(like, "assign"):
        return pd.DataFrame({name: [value]})
    return pa.record_batch({name: pa.array([value], pa.binary())})


def _select(
    names: Sequence[str],
    declared: Input,
    column: str | Sequence[str] | None,
    class_names: Sequence[str] | None,
) -> Names:
    """Return the names of the columns of scores and labels."""
    if column is None:
        known = None if class_names is None else tuple(class_names)
        return column_names(names, declared, DataSelection(class_names=known))
    labels = label_name(names)
    columns = (column,) if isinstance(column, str) else tuple(column)
    for name in columns:
        if name not in names:
            accepted = ", ".join(map(repr, names[:20]))
            raise InputError("column", found=repr(name), accepted=accepted)
    if isinstance(column, str):
        return Names(column, (), labels)
    return Names(None, columns, labels, class_names=columns if len(columns) > 1 else None)


def _table(data: Any, select: Callable[[Sequence[str]], Names]) -> tuple[Any, Names]:
    """Return the selected columns as an Arrow table, and their names."""
    is_frame = hasattr(data, "columns") and hasattr(data, "dtypes")
    if not (is_frame or _is_arrow(data, "Table") or _is_arrow(data, "RecordBatch")):
        raise InputError("data", found=type(data).__name__, accepted=_ACCEPTED)
    columns = {str(name): name for name in (data.columns if is_frame else data.schema.names)}
    names = select(list(columns))
    chosen = [n for n in (names.values, *names.columns, names.labels) if n is not None]
    part = data[[columns[name] for name in chosen]] if is_frame else data.select(chosen)
    if is_frame:
        is_pandas = hasattr(part, "index")
        part = pa.Table.from_pandas(part, preserve_index=False) if is_pandas else part.to_arrow()
    elif _is_arrow(part, "RecordBatch"):
        part = pa.Table.from_batches([part])
    return part.rename_columns(chosen), names


def _is_arrow(data: Any, name: str = "") -> bool:
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pyarrow" and name in kind.__name__


def _is_column(data: Any) -> bool:
    if _is_arrow(data):
        return isinstance(data, pa.Array | pa.ChunkedArray)
    return type(data).__module__.partition(".")[0] == "polars" and type(data).__name__ == "Series"


def _stack(values: Any) -> Matrix:
    """Return an array (n, K) of an array, or of an array of arrays."""
    array = np.asarray(values)
    return np.stack(array.tolist()) if array.dtype == object and len(array) else array


def _lists(matrix: Matrix) -> Any:
    rows, classes = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * classes
    return pa.ListArray.from_arrays(offsets, pa.array(matrix.ravel()))
