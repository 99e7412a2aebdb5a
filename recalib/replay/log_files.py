"""The row groups of a log in one or several Parquet files, of which one is open at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from recalib.errors import EmptyError, InputError, UnsupportedError
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
from recalib.files.parquet import open_table

#: A path, a folder, a glob, a URL, several of these, fragments that are complete files, or an open
#: file.
LogSource = Source | BinaryIO
_SUFFIXES = (".parquet", ".pq")


class _Group(NamedTuple):
    """A row group: its file, its number there, and the row of the log that the file begins with."""

    file: int
    number: int
    first_row: int


class LogFiles:
    """The row groups of all files, in the order of the files.

    Parameters
    ----------
    source: Parquet files, all with the same types of the columns that are read. Of several, those
        without rows are left out.
    columns: the names of columns that may be read.
    check: returns the columns to read of a schema, or raises `InputError`.

    Raises
    ------
    InputError: a file cannot be read, or its schema is not valid or differs; also later, if a file
        has changed when it is opened again.
    UnsupportedError: the name of a single file does not end in .parquet or .pq.
    """

    def __init__(
        self,
        source: LogSource,
        columns: Collection[str],
        check: Callable[[Any], list[str]],
    ) -> None:
        self._columns = columns
        self._files: list[Fragment | Path | BinaryIO] = [*_files(source)]
        self._stack = ExitStack()
        self._open_index: int | None = None
        self._table: Any = None
        #: Size and version of each file when it was opened first, by index.
        self._versions: dict[int, str] = {}
        self.groups: list[_Group] = []
        try:
            self._read_footers(check)
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
                Fragment(str(file.absolute()), "parquet") if isinstance(file, Path) else file
            )
        return fragments

    def batches(self, group: int, names: list[str], batch_size: int) -> Iterator[Any]:
        """Yield checked Arrow batches of a row group."""
        with self.named_errors(group), translate_errors("parquet"):
            table = self._open(self.groups[group].file)
            for batch in table.iter_batches(
                batch_size=batch_size,
                row_groups=[self.groups[group].number],
                columns=names,
                use_threads=False,
            ):
                batch.validate(full=True)
                yield batch

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

    def _read_footers(self, check: Callable[[Any], list[str]]) -> None:
        row = 0
        first_types = None
        for index in range(len(self._files)):
            with self._named_errors(index), translate_errors("parquet"):
                table = self._open(index)
                if table.metadata.num_rows == 0 and len(self._files) > 1:
                    continue
                schema = table.schema_arrow
                names = check(schema)
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
            self.groups += [_Group(index, n, row) for n in range(table.metadata.num_row_groups)]
            row += table.metadata.num_rows
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
            self._table = open_table(stream, self._columns)
            self._open_index = index
        return self._table

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
    if fragments := fragments_of(source, "log"):
        if any(item.row_groups is not None or item.format != "parquet" for item in fragments):
            found = "parts of files, or other formats"
            raise InputError("log", found=found, accepted="complete Parquet files")
        return fragments
    if is_single_file(source):
        single = source if isinstance(source, str | Path) else source[0]
        return [Path(single)]
    return [Fragment(file.location, "parquet") for file in list_sources(source, _SUFFIXES)]


def _version(file: Fragment | Path | BinaryIO) -> str:
    """Return the size and the version of a file; empty if it is open or cannot be found."""
    if not isinstance(file, Fragment | Path):
        return ""
    try:
        return version_of(file_of(file.location if isinstance(file, Fragment) else str(file)))
    except ValueError:
        return ""  # opening it raises the error


def _open_path(path: Path) -> BinaryIO:
    if path.suffix.lower() not in _SUFFIXES:
        found = f"a name ending in {path.suffix!r}"
        raise UnsupportedError("log", found=found, accepted=".parquet")
    try:
        return path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no file name"
        raise InputError("log", found=f"{path}: {reason}", accepted="a readable file") from error
