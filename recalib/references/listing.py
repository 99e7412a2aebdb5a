"""List the files of a URI within a root."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from recalib.errors import InputError, TooLargeError, UnavailableError, UnsupportedError
from recalib.files.fragments import File, file_of, glob_folder, list_files
from recalib.references.roots import ACCEPTED_URLS, is_plain

#: Files of a data set. A job checks each of them.
MAX_FILES = 10_000
_LOCAL = "file://"
#: Errors of a path. Other errors with a number are those of a disk or a network. Parsers raise
#: OSError without a number for damaged files.
_PATH_ERRORS = {
    None,
    errno.EACCES,
    errno.EINVAL,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
}
#: Packages of the drivers of object stores.
_DRIVERS = ("aiohttp", "botocore", "gcsfs")

_log = logging.getLogger(__name__)


def list_referenced(uri: str, root: str) -> list[File]:
    """Return the files of a URI, in the order of locations.

    Parameters
    ----------
    uri: a file, a folder or a glob, see `recalib.files.fragments.list_fragments`.
    root: see `DatasetRoots.root_of`. Local files are within it when all links are followed.

    Raises
    ------
    InputError: nothing matches, a folder cannot be read, a file is there twice because of a link,
        or a local file is outside of the root or not a regular file.
    TooLargeError: more than `MAX_FILES`.
    UnavailableError: the file system cannot be reached.
    """
    if uri.startswith(_LOCAL):  # nothing outside of the root is listed
        _real_path(folder_of(uri), root)
    with outage_errors(uri), _errors_of_uri():
        files = list(islice(list_files(uri), MAX_FILES + 1))
    if len(files) > MAX_FILES:
        raise TooLargeError("uri", found=f"more than {MAX_FILES:,} files", accepted="fewer files")
    if not uri.startswith(_LOCAL):
        for file in files:
            _check_name(file.location)
        return files
    locations: dict[Path, str] = {}
    for file in files:
        _check_name(file.location)
        other = locations.setdefault(_real_path(file.location, root), file.location)
        if other != file.location:
            found = f"{other} and {file.location}, which are the same file"
            raise InputError("uri", found=found, accepted="each file once")
    return [find_referenced(file.location, root) for file in files]


def find_referenced(location: str, root: str) -> File:
    """Return a file with its present size and version; of a link, those of what it points to.

    Raises
    ------
    InputError: it does not exist, cannot be reached, or is not within the root or not a regular
        file. The cause is the error of the file system, or None.
    """
    _check_name(location)
    if not location.startswith(_LOCAL):
        return file_of(location)
    path = _real_path(location, root)
    try:
        status = path.stat()
    except OSError as error:
        found = f"{location}: {error.strerror}"
        raise InputError("uri", found=found, accepted="readable files") from error
    if not stat.S_ISREG(status.st_mode):
        found = f"{location}, which is no regular file"
        raise InputError("uri", found=found, accepted="regular files")
    return File(location, status.st_size, str(status.st_mtime_ns))


def folder_of(uri: str) -> str:
    """Return a URI up to the folder of its first wildcard."""
    return glob_folder(uri, uri) or uri


@contextmanager
def outage_errors(uri: str) -> Iterator[None]:
    """Turn an `InputError` into `UnavailableError` if an outage of the file system causes it."""
    try:
        yield
    except InputError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        is_outage = type(cause).__module__.partition(".")[0] in _DRIVERS or (
            isinstance(cause, OSError)
            and (
                isinstance(cause, ConnectionError | TimeoutError) or cause.errno not in _PATH_ERRORS
            )
        )
        if not is_outage:
            raise
        raise outage(uri, error) from error


def outage(uri: str, error: InputError) -> UnavailableError:
    """Return the error of an outage, and log its reason, which may have the address of a store."""
    _log.warning("%s cannot be read: %s", uri, error, extra={"action": "dataset_unavailable"})
    return UnavailableError(f"{uri} cannot be read now; the log has the reason")


@contextmanager
def _errors_of_uri() -> Iterator[None]:
    """Name the field of the request."""
    try:
        yield
    except UnsupportedError as error:
        raise UnsupportedError("uri", found=error.found, accepted=ACCEPTED_URLS) from error
    except InputError as error:
        raise InputError("uri", found=error.found, accepted=error.accepted) from error


def _check_name(location: str) -> None:
    if not is_plain(location):
        accepted = "names of printable characters without `?`, `#`, `::` and `\\`"
        raise InputError("uri", found=repr(location), accepted=accepted)


def _real_path(location: str, root: str) -> Path:
    """Return the path of a local file or folder without links, which is within the root."""
    path = Path(os.path.realpath(_path(location)))
    if not path.is_relative_to(os.path.realpath(_path(root))):
        accepted = f"files below {root}, also when links are followed"
        raise InputError("uri", found=f"{location}, a link to another place", accepted=accepted)
    return path


def _path(url: str) -> str:
    return url.removeprefix(_LOCAL) or "/"
