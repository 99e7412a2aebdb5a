"""A table of text with separators: its header, and its rows in blocks of whole lines."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, BinaryIO

from recalib.core.lazy_import import LazyModule
from recalib.errors import InputError, TooLargeError
from recalib.files.limits import check_column_count
from recalib.files.raw_arrays import CHUNK_BYTES, StreamView, size_of

pa, arrow_csv = LazyModule("pyarrow"), LazyModule("pyarrow.csv")

#: Between columns, of which the first line has one.
_SEPARATORS = (",", ";", "\t", "|")
#: Names of 128 characters for the maximum number of columns.
_MAX_HEADER_BYTES = 4 << 20
#: Maximum characters of a float64 (-1.2345678901234567e-308) and its comma.
_MAX_CELL_BYTES = 25
#: Room for the longest row of the maximum number of columns.
_MAX_BLOCK_BYTES = 16 << 20
#: Bytes of the parts of a long file that can be read without the others.
_PART_BYTES = 32 << 20


class CsvTable:
    """An open file of text in UTF-8, whose first line has the names of the columns.

    The columns are separated by a comma, a semicolon, a tab or a vertical bar. Numbers have a
    decimal point, or all of a block of rows a decimal comma.

    Parameters
    ----------
    separator: one of these; by default the one in the first line. Of several, it is the one that
        divides the second line into as many cells.

    Raises
    ------
    InputError: there is no complete first line, or several separators are possible.
    TooLargeError: the first line, or the number of columns, is over a limit.
    """

    def __init__(self, stream: BinaryIO, separator: str | None = None) -> None:
        self._stream = stream
        line, self._start = _first_line(stream)
        # Count separators, quoted ones too, before Python creates an object for each name.
        check_column_count(max(line.count(character) for character in _SEPARATORS) + 1)
        self._separator = _separator(line, self._second_line(), separator)
        names = next(csv.reader([line], strict=True, delimiter=self._separator), [])
        self.names = [name.strip() for name in names]
        self._decimal_point = "."
        if line and not line.endswith(("\n", "\r")):
            raise InputError(
                "data", found="a header line without its end", accepted="a complete csv file"
            )

    def _second_line(self) -> str:
        lines = StreamView(self._stream, self._start).read(CHUNK_BYTES).splitlines()
        return lines[0].decode(errors="replace") if lines else ""

    @property
    def has_rows(self) -> bool:
        """Whether anything follows the header."""
        return self._start < size_of(self._stream)

    def parts(self) -> list[tuple[int, int]]:
        """Return the offsets of parts of about 32 MiB that end with a line, for `blocks`."""
        return line_parts(self._stream, self._start)

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
        return line_blocks(self._stream, self._start if start is None else start, end, size)

    def parse(self, block: bytes, columns: list[str], types: Mapping[str, Any]) -> Any:
        """Return columns of a block as an Arrow table; an empty cell is null.

        Parameters
        ----------
        types: of the columns; Arrow infers others.

        Raises
        ------
        pyarrow.ArrowInvalid: a cell has another type, or a row another number of cells.
        """
        try:
            return self._parse(block, columns, types, self._decimal_point)
        except pa.ArrowInvalid:
            if self._decimal_point == ",":
                raise
            with suppress(pa.ArrowInvalid):
                table = self._parse(block, columns, types, ",")
                self._decimal_point = ","
                return table
            raise

    def _parse(
        self, block: bytes, columns: list[str], types: Mapping[str, Any], decimal_point: str
    ) -> Any:
        # Not `open_csv`: its reading thread outlives an error and can crash the process.
        return arrow_csv.read_csv(
            pa.py_buffer(block),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=len(block), column_names=self.names
            ),
            arrow_csv.ParseOptions(delimiter=self._separator),
            arrow_csv.ConvertOptions(
                include_columns=columns,
                column_types={name: types[name] for name in columns if name in types},
                null_values=[""],
                strings_can_be_null=True,
                decimal_point=decimal_point,
            ),
        )


def line_parts(stream: BinaryIO, start: int = 0) -> list[tuple[int, int]]:
    """Return the offsets of parts of about 32 MiB that end with a line, for `line_blocks`."""
    size = size_of(stream)
    edges = [start]
    while edges[-1] + _PART_BYTES < size:
        edges.append(_line_end(stream, edges[-1] + _PART_BYTES))
    return [*pairwise([*edges, size])]


def _line_end(stream: BinaryIO, offset: int) -> int:
    window = StreamView(stream, offset)
    while chunk := window.read(CHUNK_BYTES):
        if end := re.search(rb"[\r\n]", chunk):
            return offset + end.end()
        offset += len(chunk)
    return offset


def line_blocks(
    stream: BinaryIO, position: int = 0, end: int | None = None, size: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """Yield lines in blocks of about `size` bytes that end with a line.

    Raises
    ------
    TooLargeError: a line is longer than 16 MiB.
    """
    end = size_of(stream) if end is None else end
    window = StreamView(stream, position)
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


@contextmanager
def rows_of_block(first_row: int) -> Iterator[None]:
    """Translate an error of Arrow, which counts the rows of a block, to rows of the file.

    It counts those of text from 1, and those of JSON from 0.
    """
    try:
        yield
    except pa.ArrowInvalid as error:
        message = re.sub(
            r"(Row #|in row )(\d+)",
            lambda match: f"row {first_row + int(match[2]) - (match[1] == 'Row #')}",
            str(error),
        )
        raise ValueError(message) from None


def _separator(first: str, second: str, separator: str | None) -> str:
    """Return the separator of two lines of a table."""
    if separator is not None:
        if separator not in _SEPARATORS:
            accepted = "one of , ; | and the tab"
            raise InputError("separator", found=repr(separator), accepted=accepted)
        return separator
    counts = {s: _cell_count(first, s) for s in _SEPARATORS if s in first}
    possible = [s for s, count in counts.items() if count > 1]
    if len(possible) > 1:
        possible = [s for s in possible if _cell_count(second, s) == counts[s]]
    if len(possible) > 1:
        found = f"{' and '.join(map(repr, possible))} between the columns of the first line"
        raise InputError("separator", found=found, accepted="separator= with one of them")
    return possible[0] if possible else ","


def _cell_count(line: str, separator: str) -> int:
    return len(next(csv.reader([line], delimiter=separator), []))


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
