"""`.csv`: a header, one column a class or that of class 1 of 2, and a column `labels`.

Numbers have a decimal point, commas separate columns, and a masked class is `-inf`. An empty cell
is an error: it is a missing number, not a masked class.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from recalib.core.lazy_import import LazyModule
from recalib.errors import EmptyError, InputError, TooLargeError
from recalib.files.base import DataFile, Layout, Numbers
from recalib.files.column_names import class_columns
from recalib.files.limits import check_column_count
from recalib.files.raw_arrays import CHUNK_BYTES, StreamView, size_of
from recalib.files.tables import Columns

pa, arrow_csv = LazyModule("pyarrow"), LazyModule("pyarrow.csv")

#: Names of 128 characters for the maximum number of columns.
_MAX_HEADER_BYTES = 4 << 20
#: Maximum characters of a float64 (-1.2345678901234567e-308) and its comma.
_MAX_CELL_BYTES = 25
#: Room for the longest row of the maximum number of columns.
_MAX_BLOCK_BYTES = 16 << 20

#: Arrow's message of a cell that is not a number: column from 0, row of the block from 1, text.
_TEXT_CELL = re.compile(
    r"CSV column #(\d+): Row #(\d+): CSV conversion .*invalid value '(.*)'", re.S
)
_MAX_QUOTED_CHARACTERS = 60


class CsvFile(DataFile):
    """Comma-separated text, UTF-8, parsed as float64 block by block."""

    is_table: ClassVar[bool] = True
    name: ClassVar[str] = "csv"
    media_types: ClassVar[tuple[str, ...]] = ("text/csv",)
    suffixes: ClassVar[tuple[str, ...]] = (".csv",)

    def _open(self) -> Layout:
        line, self._start = self._first_line()
        # Count commas, quoted ones too, before Python creates an object for each name.
        check_column_count(line.count(",") + 1)
        self._names = next(csv.reader([line], strict=True), [])
        # Text has no types: every column is float64, and labels too unless they may be names.
        columns = class_columns(self._names, self._declared, self._class_names, self._class_columns)
        is_named = columns is not None and len(columns) > 1 and self._task == "multiclass"
        texts = ("labels", "label") if is_named else ()
        self._types = {name: pa.string() if name in texts else pa.float64() for name in self._names}
        schema = pa.schema([(name, self._types[name]) for name in self._names])
        self._columns = Columns(schema, self._declared, self._task, columns)
        if not line.endswith(("\n", "\r")):
            raise InputError(
                "data", found="a header line without its end", accepted="a complete csv file"
            )
        if self._start == size_of(self._stream):
            raise EmptyError(self._declared, found="no rows", accepted="at least one row")
        return Layout(
            None,
            self._columns.classes or 0,
            self._columns.dtype,
            has_labels=self._columns.names.labels is not None,
        )

    def _read(self, step: int) -> Iterator[tuple[Numbers, Numbers | None]]:
        row = 0
        for block in self._blocks():
            for batch in self._parse(block, row).to_batches():
                yield self._columns.arrays(batch, row)
                row += batch.num_rows

    def _parse(self, block: bytes, first_row: int) -> Any:
        """Return the rows of a block as an Arrow table; errors count rows from `first_row`."""
        names = self._columns.names_to_read
        try:
            # Not `open_csv`: its reading thread outlives an error and can crash the process.
            return arrow_csv.read_csv(
                pa.py_buffer(block),
                arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(block), column_names=self._names
                ),
                convert_options=arrow_csv.ConvertOptions(
                    include_columns=names,
                    column_types={name: self._types[name] for name in names},
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            if cell := _TEXT_CELL.search(str(error)):
                column, row, text = (
                    int(cell[1]),
                    first_row + int(cell[2]) - 1,
                    cell[3][:_MAX_QUOTED_CHARACTERS],
                )
                raise self._text_error(self._names[column], row, text) from None
            # Arrow counts the rows of the block from 1.
            message = re.sub(
                r"Row #(\d+)", lambda match: f"row {first_row + int(match[1]) - 1}", str(error)
            )
            raise ValueError(message) from None

    def _text_error(self, name: str, row: int, text: str) -> InputError:
        """Return the error of a cell that is not a number."""
        if name == self._columns.names.labels:
            accepted = "class numbers, which are integers from 0"
            return InputError(f"labels[{row}]", found=repr(text), accepted=accepted)
        column = self._columns.names.columns.index(name)
        return InputError(
            f"{self._declared}[{row}][{column}]", found=repr(text), accepted="a number"
        )

    def _blocks(self) -> Iterator[bytes]:
        """Yield the lines after the header, in blocks that end with a line."""
        size = min(max(CHUNK_BYTES, 2 * _MAX_CELL_BYTES * len(self._names)), _MAX_BLOCK_BYTES)
        window = StreamView(self._stream, self._start)
        rest = b""
        while chunk := window.read(size):
            block = rest + chunk
            end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
            if end == 0 and len(block) > _MAX_BLOCK_BYTES:
                raise TooLargeError(
                    "data",
                    found=f"a row of more than {_MAX_BLOCK_BYTES >> 20} MiB",
                    accepted="shorter rows",
                )
            # Arrow rejects a block without a row.
            if block[:end].strip():
                yield block[:end]
            rest = block[end:]
        if rest.strip():
            yield rest

    def _first_line(self) -> tuple[str, int]:
        """Return the header line with its end, and the offset of the first row."""
        window = StreamView(self._stream, 0)
        text = b""
        while (end := re.search(rb"\r\n|\n|\r(?!$)", text)) is None:
            if len(text) > _MAX_HEADER_BYTES:
                raise TooLargeError(
                    "data", found="no end of the first line", accepted="a header line"
                )
            if not (chunk := window.read(CHUNK_BYTES)):
                return text.decode("utf-8-sig"), len(text)
            text += chunk
        return text[: end.end()].decode("utf-8-sig"), end.end()
