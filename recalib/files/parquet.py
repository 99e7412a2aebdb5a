"""`.parquet`: a column of lists `logits`, or one column a class, and a column `labels`."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, ClassVar

from recalib.core.lazy_import import LazyModule
from recalib.errors import EmptyError, InputError, TooLargeError
from recalib.files.base import DataFile, Input, Layout, Rows, translate_errors
from recalib.files.column_names import column_names
from recalib.files.limits import check_column_count
from recalib.files.messages import Messages
from recalib.files.raw_arrays import StreamView, read_exactly, size_of
from recalib.files.row_groups import MAX_GROUP_BYTES, check_row_groups
from recalib.files.tables import Columns

pq = LazyModule("pyarrow.parquet")

_MARK = b"PAR1"
#: pyarrow parses the whole footer. A thousand columns in a hundred groups take 10 MB.
_MAX_FOOTER_BYTES = 16 << 20
#: A column takes at least this many bytes of a footer, in the schema and in each row group. Thrift
#: allocates as many elements as a list claims: a footer of 30 bytes that claims 900,000 columns
#: costs 614 MB without a limit.
_MIN_COLUMN_BYTES = 24
_MIN_LIST_LIMIT = 1000
#: Arrow keeps several copies of a batch while it decodes (values, levels, pages).
_BATCH_BYTES = 2 << 20
#: Limit for a row group of a table that `open_table` reads, in multiples of the file's size.
_MAX_GROUP_RATIO = 16
#: Bytes of a decoded value, by physical type. A text has an offset besides its characters.
_VALUE_SIZES = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 12}
_OFFSET_BYTES = 4


class ParquetFile(DataFile):
    """A Parquet file, read page by page. Columns without logits or labels are not read.

    Parameters
    ----------
    row_groups: read these alone: the first row group and the one after the last.
    """

    name: ClassVar[str] = "parquet"
    media_types: ClassVar[tuple[str, ...]] = ("application/vnd.apache.parquet",)
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def __init__(
        self,
        stream: BinaryIO,
        declared: Input = "logits",
        *,
        row_groups: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        self._selected = row_groups
        super().__init__(stream, declared, **options)

    def _open(self) -> Layout:
        self._file = _open_file(self._stream)
        metadata = self._file.metadata
        if metadata.num_rows == 0:
            check_row_groups(metadata, size_of(self._stream), {})  # they may have rows
            # Without rows, a writer does not know the types of all columns.
            raise EmptyError(self._declared, found="no rows", accepted="at least one row")
        schema = self._file.schema_arrow
        names = column_names(schema.names, self._declared, self._selection)
        self._columns = Columns(schema, names, self._declared, self._task)
        leaves = _leaves(self._file, self._columns.names_to_read)
        sizes = {index: _value_size(leaf) for index, leaf in leaves}
        check_row_groups(metadata, size_of(self._stream), sizes)
        first, end = self._selected or (0, metadata.num_row_groups)
        if not 0 <= first <= end <= metadata.num_row_groups:
            accepted = f"0 to {metadata.num_row_groups}, the number of row groups"
            raise InputError("row_groups", found=f"{first} to {end}", accepted=accepted)
        self._row_groups = range(first, end)
        rows = sum(metadata.row_group(index).num_rows for index in self._row_groups)
        if self._columns.classes is None and rows:
            next(self._read(1), None)
        return self._columns.layout(rows)

    @property
    def first_row(self) -> int:
        metadata = self._file.metadata
        return sum(metadata.row_group(index).num_rows for index in range(self._row_groups.start))

    @property
    def rows_of_file(self) -> int:
        return int(self._file.metadata.num_rows)

    def _read(self, step: int) -> Iterator[Rows]:
        row = 0
        batches = self._file.iter_batches(
            batch_size=min(step, max(1, _BATCH_BYTES // self._columns.row_bytes)),
            row_groups=list(self._row_groups),
            columns=self._columns.names_to_read,
            use_threads=False,
        )
        for batch in batches:
            yield self._columns.arrays(batch, row)
            row += batch.num_rows


def row_group_sizes(stream: BinaryIO) -> list[int]:
    """Return the compressed bytes of each row group; 0 without rows.

    Raises
    ------
    InputError: the file is damaged.
    """
    with translate_errors("parquet"):
        metadata = _open_file(stream).metadata
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        return [
            sum(group.column(k).total_compressed_size for k in range(group.num_columns))
            if group.num_rows
            else 0
            for group in groups
        ]


def is_parquet(stream: BinaryIO) -> bool:
    """Return whether a file begins as Parquet does."""
    return StreamView(stream, 0).read(len(_MARK)) == _MARK


def value_count(stream: BinaryIO) -> int:
    """Return the number of values of all columns, as the footer says; errors as `open_table`."""
    metadata = open_table(stream).metadata
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    return sum(group.column(k).num_values for group in groups for k in range(group.num_columns))


def open_table(
    stream: BinaryIO, columns: Collection[str] | Callable[[Any], Collection[str]] | None = None
) -> Any:
    """Check the metadata of a table of any columns; return its `pyarrow.parquet.ParquetFile`.

    The checks are those of `ParquetFile`, but a row group may be 16 times as large as the file: the
    file is the user's own. Call it inside `translate_errors`, which translates Arrow's errors. A
    string of a dictionary counts once, however many rows refer to it.

    Parameters
    ----------
    columns: names of the columns that will be read, all by default, or a function that returns
        them of the open file; unknown names are ignored.

    Raises
    ------
    InputError: the file is damaged.
    TooLargeError: the metadata claims far more than the file holds.
    """
    file = _open_file(stream)
    names = columns(file) if callable(columns) else columns
    sizes = {index: _value_size(leaf) for index, leaf in _leaves(file, names)}
    size = size_of(stream)
    check_row_groups(file.metadata, size, sizes, max(MAX_GROUP_BYTES, _MAX_GROUP_RATIO * size))
    return file


def _open_file(stream: BinaryIO) -> Any:
    file = pq.ParquetFile(
        stream,
        pre_buffer=False,  # it would read whole row groups ahead
        buffer_size=1 << 16,  # for each column
        page_checksum_verification=True,
        thrift_container_size_limit=max(_MIN_LIST_LIMIT, _footer_size(stream) // _MIN_COLUMN_BYTES),
    )
    check_column_count(len(file.schema))
    _check_arrow_schema(file.metadata.metadata or {})
    return file


def _check_arrow_schema(metadata: dict[bytes, bytes]) -> None:
    """Apply the limits on Arrow files to the Arrow schema that a writer added, if there is one."""
    encoded = metadata.get(b"ARROW:schema", b"")
    if encoded:
        message = base64.b64decode(encoded, validate=True)
        Messages(io.BytesIO(message), 0, len(message)).pass_schema()


def _footer_size(stream: BinaryIO) -> int:
    """Return the length of the footer in bytes; `InputError` if there is none."""
    size = size_of(stream)
    tail = read_exactly(StreamView(stream, max(0, size - 8)), 8, "data")
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != _MARK or length > size - 8:
        raise InputError(
            "data", found="no Parquet footer at the end", accepted="a complete parquet file"
        )
    if length > _MAX_FOOTER_BYTES:
        raise TooLargeError(
            "data",
            found=f"a footer of {length >> 20} MiB",
            accepted=f"at most {_MAX_FOOTER_BYTES >> 20} MiB",
        )
    return length


def _leaves(file: Any, columns: Collection[str] | None) -> Iterator[tuple[int, Any]]:
    """Yield index and schema of the leaves of `columns`; a list's is `logits.list.element`."""
    selected = None if columns is None else set(columns)
    for index in range(len(file.schema)):
        leaf = file.schema.column(index)
        if selected is None or leaf.path in selected or leaf.path.partition(".")[0] in selected:
            yield index, leaf


def _value_size(leaf: Any) -> int:
    physical_type = leaf.physical_type
    if physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(1, int(leaf.length))
    return _VALUE_SIZES.get(physical_type, _OFFSET_BYTES)
