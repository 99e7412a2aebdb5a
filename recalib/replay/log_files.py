"""The row groups of a log in one or several files, of which one is open at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from recalib.errors import EmptyError, InputError, UnsupportedError
from recalib.files import format_of
from recalib.files.base import translate_errors
from recalib.files.fragments import (
    Fragment,
    Source,
    file_of,
    fragments_of,
    is_single_file,
    list_sources,
    open_stream,
    version_of,
)
from recalib.files.parquet import is_parquet, open_table
from recalib.files.raw_arrays import StreamView
from recalib.replay.log_schema import LogSchema, is_log_column
from recalib.replay.text_log import CsvLog, JsonLinesLog, TextLog

#: A path, a folder, a glob, a URL, several of these, fragments that are complete files, or an open
#: file.
LogSource = Source | BinaryIO
#: Formats by suffix. Folders of Parquet files may hold notes in text.
_FORMATS = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl"
}  # fmt: skip
_READABLE = ".parquet, .csv, .tsv or .jsonl"


class _Group(NamedTuple):
    """A row group, or a part of a file of text: its file, and its number there."""

    file: int
    number: int


class LogFiles:
    """The row groups of all files, in the order of the files.

    Parameters
    ----------
    source: files of Parquet, CSV or JSON lines, all with the same types of the columns that are
        read. Of several, those without rows are left out. An open file is CSV unless it begins as
        Parquet or an object does.
    read_schema: returns the columns to read of the schema of a file, or raises `InputError`.

    Raises
    ------
    InputError: a file cannot be read, or its schema is not valid or differs; also later, if a file
        has changed when it is opened again.
    UnsupportedError: the name of a single file has another ending.
    """

    def __init__(self, source: LogSource, read_schema: Callable[[Any], LogSchema]) -> None:
        self._read_schema = read_schema
        self._files: list[Fragment | Path | BinaryIO] = [*_files(source)]
        self._stack = ExitStack()
        self._open_index: int | None = None
        self._table: Any = None
        self._columns: LogSchema
        #: Size and version of each file when it was opened first, by index.
        self._versions: dict[int, str] = {}
        self.groups: list[_Group] = []
        try:
            self._read_footers()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the open file."""
        self._stack.close()
        self._open_index = None

    def fragments(self) -> list[Fragment]:
        """Return the files that have rows, in their order.

        Raises
        ------
        InputError: the source is an open file.
        """
        fragments = []
        for index in dict.fromkeys(group.file for group in self.groups):
            file = self._files[index]
            if not isinstance(file, Fragment | Path):
                raise InputError(
                    "cluster", found="an open file", accepted="paths and URLs, which workers open"
                )
            # Workers may have another working folder.
            fragments.append(
                Fragment(str(file.absolute()), _FORMATS[file.suffix.lower()])
                if isinstance(file, Path)
                else file
            )
        return fragments

    def batches(
        self, group: int, names: Sequence[str], batch_size: int, first_row: int = 0
    ) -> Iterator[Any]:
        """Yield checked Arrow batches of a row group; errors count its rows from `first_row`."""
        file, number = self.groups[group]
        with self.named_errors(group), translate_errors(self._format(file)):
            table = self._open(file)
            sources = self._columns.sources(names)
            if isinstance(table, TextLog):
                batches = table.batches(number, sources, batch_size, first_row)
            else:
                batches = table.iter_batches(
                    batch_size=batch_size, row_groups=[number], columns=sources, use_threads=False
                )
            for batch in batches:
                batch.validate(full=True)
                yield self._columns.convert(batch, names, first_row)
                first_row += batch.num_rows

    def check_unchanged(self) -> None:
        """Raise `InputError` if a file has another size or version than when it was opened first.

        A file system that has neither times nor ETags shows changes of the size alone.
        """
        for index in range(len(self._files)):
            self._check_version(index)

    @contextmanager
    def named_errors(self, group: int) -> Iterator[None]:
        """Put the name of the file before the field of an `InputError`, if there are several."""
        with self._named_errors(self.groups[group].file):
            yield

    def _read_footers(self) -> None:
        first_types = None
        for index in range(len(self._files)):
            with self._named_errors(index), translate_errors(self._format(index)):
                table = self._open(index)
                if len(self._files) > 1 and not _has_rows(table):
                    continue
                schema, names = self._columns.schema, self._columns.names
                types = {name: schema.field(name).type for name in names}
                if first_types is None:
                    #: The schema of the first file, and its columns to read.
                    self.schema, self.names, first_types = schema, names, types
                elif types != first_types:
                    accepted = ", ".join(f"{name} {kind}" for name, kind in first_types.items())
                    raise InputError(
                        "columns",
                        found=", ".join(f"{name} {kind}" for name, kind in types.items()),
                        accepted=f"{accepted}, as in the first file",
                    )
            self.groups += [_Group(index, number) for number in range(table.num_row_groups)]
        if first_types is None:
            raise EmptyError("log", found="no rows in any file", accepted="at least one prediction")

    def _open(self, index: int) -> Any:
        if index != self._open_index:
            self.close()
            file = self._files[index]
            self._check_version(index)  # before, so that no change is missed
            if isinstance(file, Fragment):
                stream = self._stack.enter_context(open_stream(file.location))
            else:
                stream = _open_path(file) if isinstance(file, Path) else file
                self._stack.callback(stream.close)
            self._table = self._open_stream(stream, self._format(index))
            self._open_index = index
        return self._table

    def _open_stream(self, stream: BinaryIO, format: str) -> Any:
        def columns(table: Any) -> list[str]:
            if len(self._files) > 1 and not _has_rows(table):
                return []  # without rows, a writer does not know the types of all columns
            self._columns = self._read_schema(table.schema_arrow)
            return self._columns.sources(self._columns.names)

        if format == "parquet":
            return open_table(stream, columns)
        is_json = format == "jsonl"
        table = JsonLinesLog(stream) if is_json else CsvLog(stream, is_log_column)
        columns(table)
        return table

    def _format(self, index: int) -> str:
        file = self._files[index]
        if isinstance(file, Fragment):
            return file.format
        if isinstance(file, Path):
            return _FORMATS.get(file.suffix.lower(), "")
        if is_parquet(file):
            return "parquet"
        return "jsonl" if StreamView(file, 0).read(1) == b"{" else "csv"

    def _check_version(self, index: int) -> None:
        file = self._files[index]
        version = _version(file)
        if self._versions.setdefault(index, version) != version:
            name = file.location if isinstance(file, Fragment) else file
            raise InputError(
                "log",
                found=f"{name}, which has changed while it was read",
                accepted="files that stay as they are",
            )

    def _named_errors(self, index: int) -> Any:
        file = self._files[index]
        return file.named_errors() if isinstance(file, Fragment) else nullcontext()


def _files(source: Any) -> list[Any]:
    if hasattr(source, "read"):
        return [source]
    formats = set(_FORMATS.values())
    if fragments := fragments_of(source, "log"):
        if any(item.row_groups is not None or item.format not in formats for item in fragments):
            found = "parts of files, or other formats"
            raise InputError("log", found=found, accepted="complete files of Parquet or text")
        return fragments
    if is_single_file(source):
        single = source if isinstance(source, str | Path) else source[0]
        return [Path(single)]
    files = list_sources(source, [*_FORMATS])
    fragments = [Fragment(file.location, format_of(None, file.location)) for file in files]
    return [file for file in fragments if file.format == "parquet"] or fragments


def _has_rows(table: Any) -> bool:
    if isinstance(table, TextLog):
        return table.num_row_groups > 0
    return bool(table.metadata.num_rows)


def _version(file: Fragment | Path | BinaryIO) -> str:
    """Return the size and the version of a file; empty if it is open or cannot be found."""
    if not isinstance(file, Fragment | Path):
        return ""
    try:
        return version_of(file_of(file.location if isinstance(file, Fragment) else str(file)))
    except ValueError:
        return ""  # opening it raises the error


def _open_path(path: Path) -> BinaryIO:
    if path.suffix.lower() not in _FORMATS:
        found = f"a name ending in {path.suffix!r}"
        raise UnsupportedError("log", found=found, accepted=_READABLE)
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file name"
        raise InputError("log", found=f"{path}: {reason}", accepted="a readable file") from error
