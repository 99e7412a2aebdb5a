"""The finished parts of a batch, stored as blobs, from which any worker goes on.

The checkpoint of a batch is ``{"upload": ..., "parts": [...], "others": [...]}``: the blob of the
uploaded rows, if any; the parts in order; and blobs that may exist and are no parts. A blob is
listed before it is stored. A worker that is killed leaves no blob that the next attempt or
`sweep_checkpoints` does not find.

With ``"divided": true``, each part has the rows of a fragment. Workers of a cluster store these
parts before they are listed; until then, `Registry.sweep` finds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.errors import CorruptError, FencedError
from recalib.registry import BlobWriter
from training.job_context import JobContext


class StoredPart(NamedTuple):
    """A part that a worker of a cluster has stored."""

    digest: str
    rows: int
    #: See `BlobWriter.abandon`.
    marker: str | None


class BatchParts:
    """Answers to consecutive rows, written under the lease of a job.

    Parameters
    ----------
    dtype: of an answer.
    """

    def __init__(self, context: JobContext, dtype: np.dtype[Any]) -> None:
        self._context, self._blobs = context, context.registry.blobs
        self._dtype = dtype
        previous = context.checkpoint or {}
        self._upload: str | None = previous.get("upload")
        self._parts: list[dict[str, Any]] = previous.get("parts", [])
        #: Whether the parts are those of fragments.
        self.divided: bool = previous.get("divided", False)
        for digest in previous.get("others", []):
            self._blobs.remove(digest)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def rows(self) -> int:
        """The number of rows in all parts."""
        return sum(part["rows"] for part in self._parts)

    def header(self, number: int) -> bytes:
        """Return the first line of a part, which makes its content unique.

        Otherwise two jobs could share a blob, and the first to finish would remove it.
        """
        lease = self._context.lease
        return f"{lease.job.id} {lease.fence} {number}\n".encode()

    def add(self, blob: BlobWriter, rows: int) -> None:
        """Store a part that is written completely.

        Raises
        ------
        FencedError: another worker has the job; the part is removed.
        UnavailableError: no space, or the database cannot be used.
        """
        digest = blob.digest
        self._record(self._parts, [digest])
        blob.commit()
        self._append(digest, rows)

    def add_stored(self, part: StoredPart) -> None:
        """List a part of the next fragment.

        Raises
        ------
        FencedError, UnavailableError: as `add`.
        """
        self.divided = True
        self._append(part.digest, part.rows)
        if part.marker is not None:
            self._blobs.remove_temporary(part.marker)

    def pieces(self, max_bytes: int) -> Iterator[NDArray[Any]]:
        """Yield the answers of all parts in order, arrays (n,) of at most `max_bytes`."""
        row_bytes = self._dtype.itemsize
        step = max(1, max_bytes // row_bytes) * row_bytes
        for part in self._parts:
            with self._blobs.open(part["digest"]) as file:
                file.readline()
                size = 0
                while content := file.read(step):
                    size += len(content)
                    yield np.frombuffer(content, self._dtype)
            if size != part["rows"] * row_bytes:
                raise CorruptError(f"part {part['digest']} of the batch has another size")

    def remove(self) -> None:
        """Remove all parts."""
        self._record([], [part["digest"] for part in self._parts])
        for part in self._parts:
            self._blobs.remove(part["digest"])

    def _append(self, digest: str, rows: int) -> None:
        parts = [*self._parts, {"digest": digest, "rows": rows}]
        try:
            self._record(parts, [])
        except FencedError:
            self._blobs.remove(digest)
            raise
        self._parts = parts

    def _record(self, parts: list[dict[str, Any]], others: list[str]) -> None:
        checkpoint: dict[str, Any] = {"parts": parts, "others": others}
        if self.divided:
            checkpoint["divided"] = True
        if self._upload is not None:
            checkpoint["upload"] = self._upload
        self._context.save_checkpoint(checkpoint)
