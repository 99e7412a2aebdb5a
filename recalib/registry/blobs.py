"""The blob store: files named by the SHA-256 of their content.

A blob is at ``<first two digits>/<digest>`` below the folder of the store. It is written under a
temporary name and renamed when it is complete, so a blob is complete, never changes, and is stored
once. From then until the writer of a new blob ends, an empty temporary file names the digest.
`Registry.sweep` therefore finds the blobs of killed writers, to which nothing may refer.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, BinaryIO, cast
from uuid import uuid4

from recalib.errors import CorruptError, InputError, NotFoundError, UnavailableError
from recalib.files.atomic_write import sync

_TEMPORARY = "temporary"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20


class BlobStore:
    """A folder or bucket of blobs: ``file:///folder``, ``s3://bucket/prefix``, ``memory://``."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def writer(self) -> Iterator[BlobWriter]:
        """Write a new blob; it is removed at the end of the block unless committed."""
        blob = BlobWriter(self)
        try:
            yield blob
        finally:
            blob.discard()

    def open(self, digest: str) -> BinaryIO:
        """Return the blob as a seekable file; `NotFoundError` if there is none."""
        path = self.path(digest)
        with storage_errors(self.url):
            try:
                return cast(BinaryIO, self.filesystem.open(path, "rb"))
            except FileNotFoundError:
                raise NotFoundError("blob", digest) from None

    def read_chunks(self, digest: str) -> Iterator[bytes]:
        """Return the content of the blob in chunks; `NotFoundError` at once if there is none.

        The last chunk comes after the digest of the whole content is verified; before it, the
        iterator raises `CorruptError`. So other content is not taken for complete, and of one chunk
        nothing is sent.
        """
        chunks = self._verified(self.open(digest), digest)
        first = next(chunks)
        return itertools.chain((first,), chunks)

    def _verified(self, file: BinaryIO, digest: str) -> Iterator[bytes]:
        checksum = hashlib.sha256()
        with file, storage_errors(self.url):
            chunk = file.read(_CHUNK)
            while chunk:
                checksum.update(chunk)
                following = file.read(_CHUNK)
                if following:
                    yield chunk
                    chunk = following
                else:
                    break
        if checksum.hexdigest() != digest:
            raise CorruptError(
                f"blob {digest} holds other bytes than its name promises; the same file, uploaded "
                "again, mends it"
            )
        yield chunk

    def verify(self, digest: str) -> None:
        """Raise `CorruptError` if the content of the blob does not match its digest."""
        for _ in self.read_chunks(digest):
            pass

    def remove(self, digest: str) -> None:
        """Remove a blob; a missing blob is no error.

        Only for content that is unique to its owner: another owner of the same bytes would lose it.
        Otherwise use `Registry.remove_unreferenced`.
        """
        path = self.path(digest)
        with storage_errors(self.url), suppress(FileNotFoundError):
            self.filesystem.rm_file(path)

    def prepare(self) -> None:
        """Create the folder or bucket if it does not exist."""
        with storage_errors(self.url):
            self.filesystem.makedirs(self.root, exist_ok=True)

    def exists(self, digest: str) -> bool:
        """Return whether there is such a blob."""
        path = self.path(digest)
        with storage_errors(self.url):
            return bool(self.filesystem.exists(path))

    def leftovers(self, older_than_seconds: float) -> list[tuple[str, str | None]]:
        """Return temporary files of killed writers: path, and digest of a committed blob or None.

        Parameters
        ----------
        older_than_seconds: age since the last change; writers change their files until they end.
        """
        before = time.time() - older_than_seconds
        leftovers = []
        with storage_errors(self.url):
            self.filesystem.invalidate_cache()
            with suppress(FileNotFoundError):
                for path in self.filesystem.ls(f"{self.root}/{_TEMPORARY}", detail=False):
                    # Its writer may end meanwhile.
                    with suppress(FileNotFoundError):
                        if self.filesystem.modified(path).timestamp() <= before:
                            leftovers.append((path, _digest_in(path)))
        return leftovers

    def mark(self, digest: str, path: str | None = None) -> str:
        """Leave an empty temporary file that names a blob, for `leftovers`; return its path.

        The folder of temporary files exists if `path`, a temporary file of a writer, is given.
        """
        marker = f"{path or self.temporary_path()}.{digest}"
        with storage_errors(self.url):
            if path is None and self.is_local:
                self.filesystem.makedirs(os.path.dirname(marker), exist_ok=True)  # noqa: PTH120
            self.filesystem.pipe_file(marker, b"")
        return marker

    def remove_temporary(self, path: str) -> None:
        """Remove a temporary file; a missing one is no error."""
        with storage_errors(self.url), suppress(FileNotFoundError):
            self.filesystem.rm_file(path)

    def path(self, digest: str) -> str:
        """Return the path of the blob; `InputError` if `digest` is not a digest."""
        if not _DIGEST.fullmatch(digest):
            raise InputError(
                "digest", found=repr(digest)[:80], accepted="64 lower-case hexadecimal digits"
            )
        return f"{self.root}/{digest[:2]}/{digest}"

    def location(self, digest: str) -> str:
        """Return the fsspec URL of the blob."""
        return self.filesystem.unstrip_protocol(self.path(digest))

    def temporary_path(self) -> str:
        """Return a unique temporary name for a file that is being written."""
        return f"{self.root}/{_TEMPORARY}/{uuid4().hex}"

    @property
    def filesystem(self) -> Any:
        """The fsspec file system."""
        return self._place[0]

    @property
    def root(self) -> str:
        """The folder within the file system."""
        return self._place[1]

    @property
    def is_local(self) -> bool:
        """Whether the blobs are files that this process can sync."""
        return "file" in self.filesystem.protocol

    @cached_property
    def _place(self) -> tuple[Any, str]:
        import fsspec.core  # here, since the S3 driver alone takes long to import

        try:
            # A cached listing would hide files that another process has stored since.
            filesystem, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise InputError(
                "blob_url", found=str(error), accepted="file:///folder or s3://bucket/prefix"
            ) from None
        return filesystem, root.rstrip("/")


class BlobWriter:
    """A blob that is being written; use it through `BlobStore.writer`."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._hash = hashlib.sha256()
        #: Bytes written so far.
        self.size = 0
        self._path = store.temporary_path()
        #: Whether there was no such blob when this one was committed. Only then may it be removed:
        #: another registry may refer to an older one in the same bucket.
        self.is_new = False
        #: The empty file that names the digest, once a new blob is committed.
        self._marker: str | None = None
        self._file: BinaryIO | None = None
        with storage_errors(store.url):
            if store.is_local:
                store.filesystem.makedirs(os.path.dirname(self._path), exist_ok=True)  # noqa: PTH120
            self._file = store.filesystem.open(self._path, "wb")

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes written so far."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> int:
        """Append `data`; `UnavailableError` if the disk is full."""
        if self._file is None:
            raise ValueError("this blob is closed; write before open_temporary and commit")
        with storage_errors(self._store.url):
            self._file.write(data)
        self._hash.update(data)
        self.size += len(data)
        return len(data)

    def open_temporary(self) -> BinaryIO:
        """Finish writing; return the content as a seekable file."""
        self._close()
        with storage_errors(self._store.url):
            return cast(BinaryIO, self._store.filesystem.open(self._path, "rb"))

    def temporary_url(self) -> str:
        """Finish writing; return the fsspec URL of the content."""
        self._close()
        return self._store.filesystem.unstrip_protocol(self._path)

    def commit(self) -> str:
        """Rename the file to its digest and return the digest.

        The content is synced before the name, and the name before this returns: a power cut leaves
        the whole blob or none. If two writers commit the same content, one file replaces the other.
        """
        self._close()
        store, target = self._store, self._store.path(self.digest)
        with storage_errors(store.url):
            self.is_new = not self._exists(target)
            if self.is_new:
                self._marker = store.mark(self.digest, self._path)
            if store.is_local:
                # Replace an existing blob too: it may be damaged.
                sync(self._path)
                store.filesystem.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH120
                os.replace(self._path, target)  # noqa: PTH105
                sync(os.path.dirname(target))  # noqa: PTH120
                sync(store.root)
            elif self.is_new:
                store.filesystem.mv(self._path, target)
        return self.digest

    def abandon(self) -> str | None:
        """Leave the committed blob to a sweep, until something refers to it.

        Return the path of the file that names the blob for the sweep; None for a blob that exists.
        """
        marker, self._marker = self._marker, None
        return marker

    def discard(self) -> None:
        """Remove the temporary files, if they are still there."""
        # Closing may fail because of a full disk; the files are removed all the same.
        with suppress(Exception):
            self._close()
        for path in filter(None, (self._path, self._marker)):
            with suppress(Exception):
                self._store.filesystem.rm_file(path)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with storage_errors(self._store.url):
                file.close()

    def _exists(self, target: str) -> bool:
        # A blob of another size is damaged and is replaced.
        try:
            return bool(self._store.filesystem.size(target) == self.size)
        except FileNotFoundError:
            return False


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Turn errors of disks and buckets into `UnavailableError`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UnavailableError(f"the blob store {url} has no space left") from error
        raise UnavailableError(f"the blob store {url} cannot be used: {error}") from error
    except _bucket_errors() as error:
        raise UnavailableError(f"the blob store {url} cannot be used: {error}") from error


def _bucket_errors() -> tuple[type[Exception], ...]:
    # Only the S3 driver raises these errors; they do not exist before it is imported.
    botocore = sys.modules.get("botocore.exceptions")
    return () if botocore is None else (botocore.BotoCoreError,)


def _digest_in(path: str) -> str | None:
    digest = path.rpartition(".")[2]
    return digest if _DIGEST.fullmatch(digest) else None
