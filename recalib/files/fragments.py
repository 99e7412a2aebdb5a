"""Data in several files: fragments, each of which is read alone.

A fragment is a file or some row groups of a Parquet file. Its rows are read in chunks of constant
memory, by the readers and with the checks of single files.

>>> fragments = list_fragments("s3://bucket/validation/")
>>> with fragments[0].open() as file:
...     for chunk in file.chunks():
...         print(chunk.first_row, chunk.logits.shape)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple, TypeVar

from recalib.core.masks import Mask
from recalib.errors import EmptyError, InputError, UnsupportedError
from recalib.files import SUFFIXES, DataFile, DataSelection, Input, Task, format_of, open_data
from recalib.files.base import NO_SELECTION
from recalib.files.parquet import ParquetFile, row_group_sizes

T = TypeVar("T")
R = TypeVar("R")

#: A path, a folder, a glob, a URL, or several of these; or fragments alone.
Source = str | os.PathLike[str] | Sequence["str | os.PathLike[str] | Fragment"]

#: Compressed bytes of a fragment's row groups, at most, unless one group is larger.
MAX_FRAGMENT_BYTES = 128 << 20
_WILDCARDS = "*?["


class File(NamedTuple):
    """A file of a source."""

    #: A path or a URL.
    location: str
    size: int
    #: The ETag or the time of modification; empty if the file system has neither.
    version: str


@dataclass(frozen=True)
class Fragment:
    """Rows that are read alone.

    Parameters
    ----------
    location: a path or a URL.
    format: a key of `recalib.files.FORMATS`.
    row_groups: the first row group of a Parquet file and the one after the last; None: all rows.
    version: size and version of the file, if it was listed.
    size: bytes, if it was listed.
    mask: the rule of logits that are read as −inf.
    selection: names in the file.
    """

    location: str
    format: str
    row_groups: tuple[int, int] | None = None
    version: str = field(default="", compare=False)
    size: int = field(default=0, compare=False)
    mask: Mask | None = field(default=None, compare=False)
    selection: DataSelection = field(default=NO_SELECTION, compare=False)

    @property
    def name(self) -> str:
        """The location, and the row groups if they are not all."""
        if self.row_groups is None:
            return self.location
        return f"{self.location} (row groups {self.row_groups[0]} to {self.row_groups[1] - 1})"

    @contextmanager
    def open(self, input: Input = "logits", task: Task = "multiclass") -> Iterator[DataFile]:
        """Open the rows for reading in chunks.

        Parameters
        ----------
        input: what the numbers are; never guessed from the values.
        task: `multilabel` for labels (N, K).

        Raises
        ------
        InputError: the file cannot be read or is not valid; the message names the fragment. Errors
            inside the context are named as well.
        """
        with self.named_errors(), open_stream(self.location) as stream:
            selected: dict[str, Any] = {"task": task, "selection": self.selection}
            if self.row_groups is None:
                file = open_data(stream, format=self.format, input=input, **selected)
            else:
                file = ParquetFile(stream, input, row_groups=self.row_groups, **selected)
            file.mask = self.mask
            yield file

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Put the name before the field of an `InputError`."""
        try:
            yield
        except InputError as error:
            renamed = type(error)(
                f"{self.name}: {error.field}", found=error.found, accepted=error.accepted
            )
            raise renamed from error


def is_single_file(source: Source) -> bool:
    """Return whether a source is one local path and no folder or glob; it need not exist."""
    text = _single(source)
    if text is None:
        return False
    is_folder = os.path.isdir(text)  # noqa: PTH112 - `Path.is_dir` raises for a very long text
    return "://" not in text and not is_folder and not _is_pattern(text)


def list_fragments(
    source: Source,
    *,
    format: str | None = None,
    max_bytes: int = MAX_FRAGMENT_BYTES,
    selection: DataSelection = NO_SELECTION,
) -> list[Fragment]:
    """Return the fragments of a source, in the order of names and row groups.

    A folder stands for all files below it with a known suffix; names that begin with `.` or `_` are
    left out, as in Hive and Spark. Folders such as `day=2026-01-01` are not read as columns.

    Parameters
    ----------
    source: a file, a folder, a glob (`*`, `?`, `[...]`, `**` for any folders), a URL of an fsspec
        file system (`s3://`, `gs://`, `file://`) with the same forms, or several of these.
    format: a key of `recalib.files.FORMATS`; by default it follows from the suffix of each file.
    max_bytes: a Parquet file with more bytes is divided at its row groups.
    selection: names in the files.

    Raises
    ------
    InputError: nothing matches, a file is listed twice or cannot be read, or a Parquet file is
        damaged.
    UnsupportedError: a named file has an unknown suffix.
    """
    if fragments := fragments_of(source):
        return fragments
    return list(divide_files(list_sources(source), format, max_bytes, selection))


def fragments_of(source: Source, field: str = "data") -> list[Fragment]:
    """Return the fragments of a source that consists of them; empty for paths.

    Raises
    ------
    InputError: the source has paths and fragments; the error names `field`.
    """
    if isinstance(source, str | os.PathLike):
        return []
    fragments = [item for item in source if isinstance(item, Fragment)]
    if 0 < len(fragments) < len(source):
        raise InputError(field, found="paths and fragments", accepted="one or the other")
    return fragments


def list_sources(source: Source, suffixes: Collection[str] = tuple(SUFFIXES)) -> list[File]:
    """Return the files of a source; of several, in this order.

    Parameters
    ----------
    suffixes: of the files of folders and globs.

    Raises
    ------
    InputError: nothing matches, a file is listed twice or with a link to it, or a folder cannot be
        read.
    """
    files: dict[str, File] = {}
    for file in _files_of(source, suffixes):
        name = file.location.removeprefix("file://")
        if "://" not in name:
            name = os.path.realpath(name)
        if name in files:
            raise InputError("data", found=f"{name} twice", accepted="each file once")
        files[name] = file
    return [*files.values()]


def check_unchanged(source: Source, fragments: Sequence[Fragment]) -> None:
    """Raise `InputError` if a file has another size or version than when it was listed.

    A file system that has neither times nor ETags shows changes of the size alone.

    Parameters
    ----------
    source: as the fragments were listed; if these are the source, their owner checks them.
    """
    if fragments_of(source):
        return
    versions = {file.location: version_of(file) for file in _files_of(source)}
    for fragment in fragments:
        if versions.get(fragment.location) != fragment.version:
            raise InputError(
                "data",
                found=f"{fragment.location}, which has changed while it was read",
                accepted="files that stay as they are",
            )


def _files_of(source: Source, suffixes: Collection[str] = tuple(SUFFIXES)) -> Iterator[File]:
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not sources:
        raise InputError("data", found="no files", accepted="at least one")
    for item in sources:
        if not isinstance(item, Fragment):
            yield from list_files(os.fspath(item), suffixes)


def version_of(file: File) -> str:
    """Return the size and the version of a file, by which changes are noticed."""
    return f"{file.size} {file.version}".strip()


def divide_files(
    files: Iterable[File],
    format: str | None = None,
    max_bytes: int = MAX_FRAGMENT_BYTES,
    selection: DataSelection = NO_SELECTION,
) -> Iterator[Fragment]:
    """Yield the fragments of files; see `list_fragments`."""
    for file in files:
        kind = format_of(format, file.location)
        fragment = Fragment(
            file.location, kind, version=version_of(file), size=file.size, selection=selection
        )
        yield from _divide(fragment, file.size, max_bytes)


def source_name(source: Source) -> str:
    """Return a name of a source for people, of at most 200 characters."""
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return ", ".join(source_names(source))[:200]


def source_names(source: Source) -> tuple[str, ...]:
    """Return the paths and URLs of a source, as the caller wrote them."""
    if isinstance(source, str | os.PathLike):
        return (os.fspath(source),)
    return tuple(_text(item) for item in source)


def _text(item: str | os.PathLike[str] | Fragment) -> str:
    return item.name if isinstance(item, Fragment) else os.fspath(item)


def _single(source: Source) -> str | None:
    if isinstance(source, str | os.PathLike):
        return os.fspath(source)
    return _text(source[0]) if len(source) == 1 else None


def _is_pattern(text: str) -> bool:
    """Return whether a text is a glob; a file may have such a name."""
    has_wildcard = any(character in text for character in _WILDCARDS)
    return has_wildcard and not os.path.exists(text)  # noqa: PTH110 - as in `is_single_file`


def list_files(text: str, suffixes: Collection[str] = tuple(SUFFIXES)) -> Iterable[File]:
    """Return the files of a source, in the order of locations.

    Raises
    ------
    InputError: nothing matches, or a folder cannot be read.
    """
    filesystem, path = filesystem_of(text)
    folder = glob_folder(text, path)
    with file_errors(text):
        if folder is not None:
            found = filesystem.glob(path, detail=True)
            files = {name: entry for name, entry in found.items() if entry["type"] != "directory"}
            for name, entry in found.items():  # a folder that matches stands for its files
                if entry["type"] == "directory":
                    files |= filesystem.find(name, detail=True)
            files = _known(files, folder, suffixes)
        elif filesystem.isdir(path):
            files = _known(filesystem.find(path, detail=True), path, suffixes)
        else:
            files = {path: filesystem.info(path)}
    if not files:
        accepted = f"a file, folder or glob with files that end in {', '.join(suffixes)}"
        raise InputError("data", found=f"nothing at {text}", accepted=accepted)
    is_local = "://" not in text
    for name in sorted(files):
        location = name if is_local else filesystem.unstrip_protocol(name)
        yield _file(location, files[name])


def glob_folder(text: str, path: str) -> str | None:
    """Return the folder before the first wildcard in the path of a source, None without a glob."""
    has_wildcard = any(character in text for character in _WILDCARDS)
    if not (has_wildcard and ("://" in text or _is_pattern(text))):
        return None
    first = min(path.index(character) for character in _WILDCARDS if character in path)
    return path[:first].rpartition("/")[0]


def file_of(location: str) -> File:
    """Return the file of a path or URL.

    Raises
    ------
    InputError: it does not exist, or cannot be read.
    """
    filesystem, path = filesystem_of(location)
    with file_errors(location):
        return _file(location, filesystem.info(path))


def _file(location: str, entry: dict[str, Any]) -> File:
    mark = entry.get("ETag") or entry.get("etag") or entry.get("mtime") or ""
    return File(location, int(entry["size"] or 0), str(mark))


def _known(files: dict[str, Any], folder: str, suffixes: Collection[str]) -> dict[str, Any]:
    """Return the files below a folder with a known suffix, without hidden ones."""
    prefix = folder.rstrip("/") + "/"
    return {
        name: entry
        for name, entry in files.items()
        if PurePosixPath(name).suffix.lower() in suffixes
        and not any(part[:1] in (".", "_") for part in name.removeprefix(prefix).split("/"))
    }


def _divide(fragment: Fragment, size: int, max_bytes: int) -> Iterator[Fragment]:
    """Yield the fragments of a file: a large Parquet file is divided at its row groups."""
    if fragment.format != "parquet" or size <= max_bytes:
        yield fragment
        return
    with fragment.named_errors(), open_stream(fragment.location) as stream:
        sizes = row_group_sizes(stream)
    first = total = 0
    for index, group_size in enumerate(sizes):
        # A group without rows joins its neighbours.
        if total and group_size and total + group_size > max_bytes:
            yield replace(fragment, row_groups=(first, index), size=total)
            first, total = index, 0
        total += group_size
    yield replace(fragment, row_groups=(first, len(sizes)), size=total)


def none_if_empty(work: Callable[[T], R], task: T) -> R | None:
    """Return `work(task)`, or None if its fragment has no rows.

    Engines such as Spark write a file for each partition, also for one without rows.
    """
    try:
        return work(task)
    except EmptyError:
        return None


def no_rows(fragments: Sequence[Fragment]) -> EmptyError:
    """Return the error of a source without any row."""
    more = f" and {len(fragments) - 1} more" if len(fragments) > 1 else ""
    found = f"no rows in {fragments[0].name}{more}"
    return EmptyError("data", found=found, accepted="at least one row")


@contextmanager
def open_stream(location: str) -> Iterator[BinaryIO]:
    """Open the file of a path or URL for reading.

    Raises
    ------
    InputError: the file cannot be read.
    """
    filesystem, path = filesystem_of(location)
    with file_errors(location):
        stream = filesystem.open(path, "rb")
    with stream:
        yield stream


def filesystem_of(text: str, field: str = "data") -> tuple[Any, str]:
    """Return the fsspec file system and the path in it of a path or URL.

    Raises
    ------
    UnsupportedError: the kind of URL is unknown, or its driver is not installed.
    """
    import fsspec.core  # here: S3's driver alone takes long to import

    with file_errors(text, field):
        try:
            filesystem, path = fsspec.core.url_to_fs(text, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            drivers = "s3:// (recalib[s3]), gs:// (recalib[gcs])"
            accepted = f"a path, or a URL of file://, {drivers} or another fsspec file system"
            raise UnsupportedError(field, found=f"{text} ({error})", accepted=accepted) from error
    return filesystem, path


@contextmanager
def file_errors(text: str, field: str = "data") -> Iterator[None]:
    """Turn the errors of a file system into `InputError`."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        # Drivers of object stores have classes of errors that exist only where they are installed.
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in (
            "botocore",
            "gcsfs",
        ):
            raise
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(
            field,
            found=f"{text}: {reason.splitlines()[0][:200]}",
            accepted="a file or folder that can be reached",
        ) from error
