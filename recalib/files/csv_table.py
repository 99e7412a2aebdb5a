"""A table of comma-separated text: its header, and its rows in blocks of whole lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, BinaryIO

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError, TooLargeError
from recalib.files.limits import check_column_count
from recalib.files.raw_arrays import CHUNK_BYTES, StreamView, size_of

pa, arrow_csv = LazyModule("pyarrow"), LazyModule("pyarrow.csv")

#: Names of 128 characters for the maximum number of columns.
_MAX_HEADER_BYTES = 4 << 20
#: Maximum characters of a float64 (-1.2345678901234567e-308) and its comma.
_MAX_CELL_BYTES = 25
#: Room for the longest row of the maximum number of columns.
_MAX_BLOCK_BYTES = 16 << 20
#: Bytes of the parts of a long file that can be read without the others.
_PART_BYTES = 32 << 20


class CsvTable:
    """An open file of comma-separated text, UTF-8, whose first line has the names of the columns.

    Raises
    ------
    InputError: there is no complete first line.
    TooLargeError: the first line, or the number of columns, is over a limit.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        line, self._start = _first_line(stream)
        # Count commas, quoted ones too, before Python creates an object for each name.
        check_column_count(line.count(",") + 1)
        self.names = next(csv.reader([line], strict=True), [])
        if line and not line.endswith(("\n", "\r")):
            raise InputError(
                "data", found="a header line without its end", accepted="a complete csv file"
            )

    @property
    def has_rows(self) -> bool:
        """Whether anything follows the header."""
        return self._start < size_of(self._stream)

    def parts(self) -> list[tuple[int, int]]:
        """Return the offsets of parts of about 32 MiB that end with a line, for `blocks`."""
        size = size_of(self._stream)
        edges = [self._start]
        while edges[-1] + _PART_BYTES < size:
            edges.append(self._line_end(edges[-1] + _PART_BYTES))
        return [*pairwise([*edges, size])]

    def blocks(self, start: int | None = None, end: int | None = None) -> Iterator[bytes]:
        """Yield the lines after the header, in blocks that end with a line.

        Parameters
        ----------
        start, end: the offsets of a part.

        Raises
        ------
        TooLargeError: a row is longer than a block.
        """
        size = min(max(CHUNK_BYTES, 2 * _MAX_CELL_BYTES * len(self.names)), _MAX_BLOCK_BYTES)
        position = self._start if start is None else start
        end = size_of(self._stream) if end is None else end
        window = StreamView(self._stream, position)
        rest = b""
        while chunk := window.read(min(size, end - position)):
            position += len(chunk)
            block = rest + chunk
            cut = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
            if cut == 0 and len(block) > _MAX_BLOCK_BYTES:
                raise TooLargeError(
                    "data",
                    found=f"a row of more than {_MAX_BLOCK_BYTES >> 20} MiB",
                    accepted="shorter rows",
                )
            # Arrow rejects a block without a row.
            if block[:cut].strip():
                yield block[:cut]
            rest = block[cut:]
        if rest.strip():
            yield rest

    def parse(self, block: bytes, columns: list[str], types: Mapping[str, Any]) -> Any:
        """Return columns of a block as an Arrow table; an empty cell is null.

        Parameters
        ----------
        types: of the columns; Arrow infers others.

        Raises
        ------
        pyarrow.ArrowInvalid: a cell has another type, or a row another number of cells.
        """
        # Not `open_csv`: its reading thread outlives an error and can crash the process.
        return arrow_csv.read_csv(
            pa.py_buffer(block),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=len(block), column_names=self.names
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=columns,
                column_types={name: types[name] for name in columns if name in types},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )

    def _line_end(self, offset: int) -> int:
        window = StreamView(self._stream, offset)
        while chunk := window.read(CHUNK_BYTES):
            if end := re.search(rb"[\r\n]", chunk):
                return offset + end.end()
            offset += len(chunk)
        return offset


@contextmanager
def rows_of_block(first_row: int) -> Iterator[None]:
    """Translate an error of Arrow, which counts the rows of a block from 1, to rows of the file."""
    try:
        yield
    except pa.ArrowInvalid as error:
        message = re.sub(
            r"Row #(\d+)", lambda match: f"row {first_row + int(match[1]) - 1}", str(error)
        )
        raise ValueError(message) from None


def _first_line(stream: BinaryIO) -> tuple[str, int]:
    """Return the header line with its end, and the offset of the first row."""
    window = StreamView(stream, 0)
    text = b""
    while (end := re.search(rb"\r\n|\n|\r(?!$)", text)) is None:
        if len(text) > _MAX_HEADER_BYTES:
            raise TooLargeError("data", found="no end of the first line", accepted="a header line")
        if not (chunk := window.read(CHUNK_BYTES)):
            return text.decode("utf-8-sig"), len(text)
        text += chunk
    return text[: end.end()].decode("utf-8-sig"), end.end()
