"""The manifest of a data set by reference: which files it has, and how they are recognised."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from recalib.core.decoding import decoder_of
from recalib.errors import CorruptError, InputError, UnsupportedError
from recalib.files import DataSelection
from recalib.files.fragments import MAX_FRAGMENT_BYTES, File, Fragment, divide_files, open_stream
from recalib.references.listing import find_referenced, folder_of, outage

#: Content type of the blob of a data set by reference.
MANIFEST_TYPE = "application/vnd.recalib.manifest+json"
#: Requests to a store at once. Each thread needs 8 MiB of address space.
_THREADS = 8


class ReferencedFile(msgspec.Struct, frozen=True):
    """A file that was checked when the data set was registered."""

    #: A URL.
    location: str
    size: int
    #: The ETag, or the time of modification in nanoseconds.
    version: str
    #: A key of `recalib.files.FORMATS`.
    format: str
    #: The dtype of its numbers; empty without rows.
    dtype: str
    rows: int
    #: Of the content; None if only the header was read.
    sha256: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The files of a data set, in the order of their rows.

    Parameters
    ----------
    uri: a file, a folder or a glob. Files that appear there later do not belong to the data set.
    root: the root that contained it, see `DatasetRoots`.
    classes: K.
    """

    uri: str
    root: str
    classes: int
    files: tuple[ReferencedFile, ...]
    version: int = 1

    @property
    def rows(self) -> int:
        """N."""
        return sum(file.rows for file in self.files)

    @property
    def filled(self) -> tuple[ReferencedFile, ...]:
        """The files that have rows."""
        return tuple(file for file in self.files if file.rows)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def is_checked(self) -> bool:
        """Whether every row was checked, and the contents are digested."""
        return all(file.sha256 is not None for file in self.files)

    @classmethod
    def from_bytes(cls, content: bytes) -> Manifest:
        """Return what `to_bytes` encoded; `CorruptError` for other bytes."""
        try:
            return decoder_of(cls).decode(content)
        except msgspec.DecodeError as error:
            raise CorruptError(f"the manifest of a data set cannot be read: {error}") from error

    def to_bytes(self) -> bytes:
        """Return JSON; equal manifests have equal bytes."""
        return msgspec.json.encode(self)

    def fragments(
        self, selection: DataSelection, max_bytes: int = MAX_FRAGMENT_BYTES
    ) -> list[Fragment]:
        """Return the fragments of all rows, in their order; see `list_fragments`."""
        return [
            fragment
            for file in self.filled
            for fragment in divide_files(
                [File(file.location, file.size, file.version)], file.format, max_bytes, selection
            )
        ]

    def check_unchanged(self) -> None:
        """Compare sizes and version marks of all files with those of the registration.

        Raises
        ------
        CorruptError: a file has changed or vanished; the message names it and what was found.
        UnavailableError: the file system cannot be reached, or refuses access.
        """
        with ThreadPoolExecutor(_THREADS) as pool:
            for file, found in zip(self.files, pool.map(self._find, self.files), strict=True):
                if (found.size, found.version) != (file.size, file.version):
                    raise CorruptError(
                        f"{file.location} has changed since the data set was registered: it has "
                        f"{found.size} bytes and version {found.version}, and had {file.size} "
                        f"bytes and version {file.version}"
                    )

    def _find(self, file: ReferencedFile) -> File:
        try:
            return find_referenced(file.location, self.root)
        except UnsupportedError:  # the driver is not installed
            raise
        except InputError as error:
            if error.__cause__ is None:
                raise CorruptError(
                    f"{error.found}; the data set at {self.uri} needs the file"
                ) from error
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                raise CorruptError(
                    f"{file.location} does not exist any more; the data set at {self.uri} needs it"
                ) from error
            # Expired credentials are PermissionError.
            raise outage(self.uri, error) from error


def check_content(file: ReferencedFile) -> None:
    """Raise `CorruptError` if a file has other bytes than those that were checked."""
    if file.sha256 is not None and (found := sha256_of(file.location)) != file.sha256:
        raise CorruptError(
            f"{file.location} has changed since the data set was registered: its SHA-256 is "
            f"{found}, and was {file.sha256}"
        )


def sha256_of(location: str) -> str:
    """Return the SHA-256 of the content of a file, in hex."""
    with open_stream(location) as stream:
        # Streams of fsspec have `readinto`, which `BinaryIO` does not declare.
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def content_digest(uri: str, files: Sequence[ReferencedFile]) -> str:
    """Return the digest of the contents of files, which a caller can compute too.

    Of one file, the SHA-256 of its content. Of several, the SHA-256 of what
    ``sha256sum FILES`` prints: for each file, in the order of names, its SHA-256, two spaces, its
    name relative to the folder of the URI, and a line feed.
    """
    if len(files) == 1:
        return str(files[0].sha256)
    folder = folder_of(uri).rstrip("/") + "/"
    lines = (f"{file.sha256}  {file.location.removeprefix(folder)}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
