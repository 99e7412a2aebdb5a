"""A file of text of a log, in parts that take the place of the row groups of a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, BinaryIO

from recalib.core.lazy_import import LazyModule
from recalib.files.csv_table import CsvTable, line_blocks, line_parts, rows_of_block

pa, arrow_json = LazyModule("pyarrow"), LazyModule("pyarrow.json")


class TextLog:
    """An open file of a log whose rows are lines: CSV or JSON."""

    #: The columns, with their types.
    schema_arrow: Any
    #: The offsets of parts, none without rows, and what yields the lines of one.
    _parts: list[tuple[int, int]]
    _blocks: Callable[..., Iterator[bytes]]

    @property
    def num_row_groups(self) -> int:
        """The number of parts; 0 without rows."""
        return len(self._parts)

    def batches(
        self, part: int, columns: Sequence[str], batch_size: int, first_row: int
    ) -> Iterator[Any]:
        """Yield Arrow batches of a part; errors count rows from `first_row`."""
        types = {name: self.schema_arrow.field(name).type for name in columns}
        for block in self._blocks(*self._parts[part]):
            with rows_of_block(first_row):
                table = self._parse(block, types)
            yield from table.to_batches(max_chunksize=batch_size)
            first_row += table.num_rows

    def _parse(self, block: bytes, types: dict[str, Any]) -> Any:
        """Return columns of a block, with these types."""
        raise NotImplementedError


class CsvLog(TextLog):
    """An open CSV file of a log.

    Parameters
    ----------
    is_column: whether a name is that of a column of a log, which is read as text. The types of
        others are those of the first rows.
    """

    def __init__(self, stream: BinaryIO, is_column: Callable[[str], bool]) -> None:
        self._table = CsvTable(stream)
        self._blocks = self._table.blocks
        first = next(self._blocks(), None)
        self._parts = [] if first is None else self._table.parts()
        others = [name for name in self._table.names if not is_column(name)]
        types = dict.fromkeys(self._table.names, pa.string())
        if first is not None and others:
            with rows_of_block(0):
                inferred = self._table.parse(first, others, {}).schema
            types |= {f.name: f.type for f in inferred if not pa.types.is_null(f.type)}
        self.schema_arrow = pa.schema([(name, types[name]) for name in self._table.names])

    def _parse(self, block: bytes, types: dict[str, Any]) -> Any:
        return self._table.parse(block, [*types], types)


class JsonLinesLog(TextLog):
    """An open file with an object on each line. The types of a column are those of all its rows."""

    def __init__(self, stream: BinaryIO) -> None:
        self._blocks, row = partial(line_blocks, stream), 0
        schemas = [pa.schema([])]
        for block in self._blocks():
            with rows_of_block(row):
                table = self._parse(block, {})
            schemas.append(table.schema)
            row += table.num_rows
        self.schema_arrow = pa.unify_schemas(schemas, promote_options="permissive")
        self._parts = line_parts(stream) if row else []

    def _parse(self, block: bytes, types: dict[str, Any]) -> Any:
        """Without types all columns, with those of their values."""
        schema, others = (pa.schema(types.items()), "ignore") if types else (None, "infer")
        options = arrow_json.ParseOptions(schema, unexpected_field_behavior=others)
        reading = arrow_json.ReadOptions(use_threads=False, block_size=len(block) + 1)
        return arrow_json.read_json(pa.BufferReader(block), reading, options)
