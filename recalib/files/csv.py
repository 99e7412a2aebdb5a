"""`.csv`, `.tsv`: a header, one column a class or that of class 1 of 2, and a column `labels`.

A masked class is `-inf`. An empty cell is an error: it is a missing number, not a masked class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar

from recalib.core.lazy_import import LazyModule
from recalib.errors import EmptyError, InputError
from recalib.files.base import DataFile, Layout, Rows
from recalib.files.column_names import column_names
from recalib.files.csv_table import CsvTable, rows_of_block
from recalib.files.tables import Columns

pa = LazyModule("pyarrow")

#: Arrow's message of a cell that is not a number: column from 0, row of the block from 1, text.
_TEXT_CELL = re.compile(
    r"CSV column #(\d+): Row #(\d+): CSV conversion .*invalid value '(.*)'", re.S
)
_MAX_QUOTED_CHARACTERS = 60


class CsvFile(DataFile):
    """Text in UTF-8, with a comma, a semicolon, a tab or a bar between columns; read as float64."""

    name: ClassVar[str] = "csv"
    media_types: ClassVar[tuple[str, ...]] = ("text/csv", "text/tab-separated-values")
    suffixes: ClassVar[tuple[str, ...]] = (".csv", ".tsv")

    def _open(self) -> Layout:
        self._table = CsvTable(self._stream, self._selection.separator)
        self._names = self._table.names
        names = column_names(self._names, self._declared, self._selection)
        # Text has no types: every column is float64, but labels may be names or truth values.
        self._types = {name: pa.float64() for name in self._names}
        if names.labels is not None and self._task == "multiclass":
            self._types[names.labels] = pa.string()
        self._columns = Columns(pa.schema(self._types.items()), names, self._declared, self._task)
        if not self._table.has_rows:
            raise EmptyError(self._declared, found="no rows", accepted="at least one row")
        return self._columns.layout()

    def _read(self, step: int) -> Iterator[Rows]:
        row = 0
        for block in self._table.blocks():
            for batch in self._parse(block, row).to_batches():
                yield self._columns.arrays(batch, row)
                row += batch.num_rows

    def _parse(self, block: bytes, first_row: int) -> Any:
        """Return the rows of a block as an Arrow table; errors count rows from `first_row`."""
        names = self._columns.names_to_read
        with rows_of_block(first_row):
            try:
                return self._table.parse(block, names, self._types)
            except pa.ArrowInvalid as error:
                if (cell := _TEXT_CELL.search(str(error))) is None:
                    raise
                row, text = first_row + int(cell[2]) - 1, cell[3][:_MAX_QUOTED_CHARACTERS]
                raise self._text_error(self._names[int(cell[1])], row, text) from None

    def _text_error(self, name: str, row: int, text: str) -> InputError:
        """Return the error of a cell that is not a number."""
        if name == self._columns.names.weights:
            return InputError(f"weights[{row}]", found=repr(text), accepted="a number")
        column = self._columns.names.columns.index(name)
        return InputError(
            f"{self._declared}[{row}][{column}]", found=repr(text), accepted="a number"
        )
