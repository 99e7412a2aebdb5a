"""`.jsonl`: an object for each row, as in a table, or a sample of lm-evaluation-harness.

A row has a list `logits`, in which null is a masked class, or one member a class; and `label`.
Samples that the harness writes with
`--log_samples` are read by `recalib.llm.harness_sample`: the log-likelihoods of the options of a
question, and the right one. A question with fewer options than others has masked classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, ClassVar

import msgspec
import numpy as np

from recalib.core.lazy_import import LazyModule
from recalib.errors import EmptyError, InputError
from recalib.files.base import DataFile, Layout, Rows
from recalib.files.column_names import column_names
from recalib.files.csv_table import line_blocks
from recalib.files.json import decode, decode_document
from recalib.files.tables import Columns
from recalib.llm import harness_sample

pa = LazyModule("pyarrow")

#: Members of a sample of lm-evaluation-harness.
_SAMPLE = ("filtered_resps", "target", "arguments")

_line = msgspec.json.Decoder(dict[str, msgspec.Raw])
_value = msgspec.json.Decoder(Any)

_Line = dict[str, msgspec.Raw]


class JsonLinesFile(DataFile):
    """An object on each line, or samples of lm-evaluation-harness. Other members are ignored."""

    name: ClassVar[str] = "jsonl"
    media_types: ClassVar[tuple[str, ...]] = ("application/jsonl", "application/x-ndjson")
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson")

    def _open(self) -> Layout:
        first = next((line for lines in _lines(self._stream) for line in lines), None)
        if first is None:
            raise EmptyError(self._declared, found="no rows", accepted="at least one row")
        self._columns: Columns | None = None
        if _is_sample(first) and self._selection.scores is None:
            options = max(len(scores) for samples in self._samples() for scores, _ in samples)
            return Layout(None, options, np.dtype(np.float64), has_labels=True)
        names = column_names([*first], self._declared, self._selection)
        schema = self._table([first], [*first], 0).schema
        self._columns = Columns(schema, names, self._declared, self._task)
        if self._columns.classes is None:
            next(self._read(1))
        return self._columns.layout()

    def _read(self, step: int) -> Iterator[Rows]:
        if self._columns is None:
            for samples in self._samples():
                scores = np.full((len(samples), self.classes), -np.inf)
                for place, (options, _) in zip(scores, samples, strict=True):
                    place[: len(options)] = options
                yield scores, np.array([label for _, label in samples]), None
            return
        row = 0
        for lines in _lines(self._stream):
            for batch in self._table(lines, self._columns.names_to_read, row).to_batches():
                yield self._columns.arrays(batch, row)
                row += batch.num_rows

    def _samples(self) -> Iterator[list[tuple[list[float], int]]]:
        """Yield the options and labels of each block of samples."""
        row = 0
        for lines in _lines(self._stream):
            samples = []
            for index, line in enumerate(lines, row):
                try:
                    samples.append(harness_sample(_members(line, _SAMPLE, index)))
                except InputError as error:
                    field = f"data[{index}].{error.field}"
                    raise InputError(field, found=error.found, accepted=error.accepted) from None
            row += len(lines)
            yield samples

    def _table(self, lines: list[_Line], names: list[str], first_row: int) -> Any:
        rows = [_members(line, names, index) for index, line in enumerate(lines, first_row)]
        if self._declared == "logits" and not self.is_multilabel:
            rows = [{name: _masked(value) for name, value in row.items()} for row in rows]
        return pa.Table.from_pylist(rows)


def read_members(stream: BinaryIO, choose: Callable[[Sequence[str]], list[str]]) -> Any:
    """Return members of all lines as an Arrow table; None for samples of lm-evaluation-harness.

    Parameters
    ----------
    choose: returns the names of members to read, of those that the lines have.
    """
    lines = [line for block in _lines(stream) for line in block]
    if lines and _is_sample(lines[0]):
        return None
    names = choose(list(dict.fromkeys(name for line in lines for name in line)))
    rows = [_members(line, names, row) for row, line in enumerate(lines)]
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> Any:
    """Return values as an Arrow column, of several types or of larger integers as JSON texts."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        encode = msgspec.json.encode
        return pa.array([None if value is None else encode(value).decode() for value in values])


def _is_sample(line: _Line) -> bool:
    return {*_SAMPLE} <= {*line}


def _lines(stream: BinaryIO) -> Iterator[list[_Line]]:
    """Yield the objects of the lines of each block."""
    row = 0
    for block in line_blocks(stream):
        texts = [text for text in block.splitlines() if text.strip()]
        yield [
            decode(_line, text, "an object on each line", f"data[{row + index}]")
            for index, text in enumerate(texts)
        ]
        row += len(texts)


def _masked(value: Any) -> Any:
    """Return logits with −inf for null, a masked class; other values unchanged."""
    if isinstance(value, list) and None in value:
        return [-np.inf if number is None else number for number in value]
    return value


def _members(line: _Line, names: Any, row: int) -> dict[str, Any]:
    """Return the values of the members `names` that a line has."""
    return {
        name: decode_document(_value, bytes(line[name]), "JSON", f"data[{row}].{name}")
        for name in names
        if name in line
    }
