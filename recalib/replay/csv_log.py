"""A CSV file of a log, in parts that take the place of the row groups of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

from recalib.core.lazy_import import LazyModule
from recalib.files.csv_table import CsvTable, rows_of_block

pa = LazyModule("pyarrow")


class CsvLog:
    """An open CSV file of a log.

    Parameters
    ----------
    is_column: whether a name is that of a column of a log, which is read as text. The types of
        others are those of the first rows.
    """

    def __init__(self, stream: BinaryIO, is_column: Callable[[str], bool]) -> None:
        self._table = CsvTable(stream)
        first = next(self._table.blocks(), None)
        self._parts = [] if first is None else self._table.parts()
        others = [name for name in self._table.names if not is_column(name)]
        self._types = dict.fromkeys(self._table.names, pa.string())
        if first is not None and others:
            inferred = self._parse(first, others, {}, 0).schema
            known = [field for field in inferred if not pa.types.is_null(field.type)]
            self._types |= {field.name: field.type for field in known}
        #: The columns, with their types.
        self.schema_arrow = pa.schema([(name, self._types[name]) for name in self._table.names])

    @property
    def num_row_groups(self) -> int:
        """The number of parts; 0 without rows."""
        return len(self._parts)

    def batches(
        self, part: int, columns: Sequence[str], batch_size: int, first_row: int
    ) -> Iterator[Any]:
        """Yield Arrow batches of a part; errors count rows from `first_row`."""
        for block in self._table.blocks(*self._parts[part]):
            table = self._parse(block, list(columns), self._types, first_row)
            yield from table.to_batches(max_chunksize=batch_size)
            first_row += table.num_rows

    def _parse(
        self, block: bytes, columns: list[str], types: dict[str, Any], first_row: int
    ) -> Any:
        with rows_of_block(first_row):
            return self._table.parse(block, columns, types)
