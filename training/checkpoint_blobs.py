"""Checkpoints of training jobs, stored as blobs, so that any worker can resume them.

The checkpoint of a job is ``{"digest": ..., "others": [...]}``: the current blob, if any, and old
or new blobs that may exist and are not current. A blob is listed before it is stored and until it
is removed. A worker that is killed in between therefore leaves no blob that the next attempt or
`sweep_checkpoints` does not find.
"""

from __future__ import annotations

import contextlib
from typing import Any

from recalib.errors import FencedError, NotFoundError
from recalib.registry import Registry
from training.job_context import JobContext


class CheckpointBlobs:
    """The newest checkpoint of a job, written under its lease."""

    def __init__(self, context: JobContext) -> None:
        self._context, self._blobs = context, context.registry.blobs
        # A header makes blobs unique. Two runs of the same recipe have the same checkpoints, and
        # the first to finish would remove a blob that the other still needs.
        self._header = f"{context.lease.job.id} {context.lease.fence}\n".encode()
        previous = context.checkpoint or {}
        self._current: str | None = previous.get("digest")
        self._others: list[str] = previous.get("others", [])
        self._remove_others()
        #: Whether `save` does nothing, because no attempt will resume this job.
        self.closed = False

    def load(self) -> bytes | None:
        """Return the checkpoint of an earlier attempt, or None."""
        if self._current is None:
            return None
        with self._blobs.open(self._current) as file:
            return file.read().partition(b"\n")[2]

    def save(self, data: bytes) -> None:
        """Save a checkpoint, then remove the previous one.

        Raises
        ------
        FencedError: another worker has the job; its checkpoint stays, and `data` is removed.
        UnavailableError: no space; the previous checkpoint stays.
        """
        if self.closed:
            return
        previous = self._current
        with self._blobs.writer() as blob:
            blob.write(self._header + data)
            digest = blob.digest
            if digest == previous:
                return
            self._others = [*self._others, digest]
            self._record(previous, self._others)
            blob.commit()
        obsolete = [other for other in (*self._others, previous) if other and other != digest]
        try:
            self._record(digest, obsolete)
        except FencedError:
            self._blobs.remove(digest)
            raise
        self._current, self._others = digest, obsolete
        self._remove_others()

    def clear(self) -> None:
        """Remove the checkpoint of a finished job."""
        if self._current is not None:
            self._blobs.remove(self._current)
            self._current = None

    def _record(self, digest: str | None, obsolete: list[str]) -> None:
        current = {} if digest is None else {"digest": digest}
        self._context.save_checkpoint({**current, "others": obsolete})

    def _remove_others(self) -> None:
        for digest in self._others:
            self._blobs.remove(digest)
        self._others = []


def sweep_checkpoints(registry: Registry) -> int:
    """Remove the checkpoints of jobs that ended without removing them; return the number of jobs.

    Such jobs failed, were cancelled in the queue, or ended with their worker. The sweep is
    idempotent and may run concurrently.
    """
    with registry.reading() as tx:
        leftover = tx.jobs.leftover_checkpoints()
    for job_id, checkpoint in leftover.items():
        _remove_blobs(registry, job_id, checkpoint)
    return len(leftover)


def sweep_job(registry: Registry, job_id: str) -> None:
    """Remove what a finished job has left, as `sweep_checkpoints`."""
    checkpoint = None
    # A job that was deleted meanwhile is left to `sweep_checkpoints`.
    with contextlib.suppress(NotFoundError), registry.reading() as tx:
        checkpoint = tx.jobs.get(job_id).checkpoint
    if checkpoint is not None:
        _remove_blobs(registry, job_id, checkpoint)


def _remove_blobs(registry: Registry, job_id: str, checkpoint: dict[str, Any]) -> None:
    parts = (part["digest"] for part in checkpoint.get("parts", []))
    for digest in (checkpoint.get("digest"), *parts, *checkpoint.get("others", [])):
        if digest is not None:
            registry.blobs.remove(digest)
    if "upload" in checkpoint:
        # A data set, or another batch, may have the same bytes.
        registry.remove_unreferenced(checkpoint["upload"])
    with registry.transaction() as tx:
        tx.jobs.clear_checkpoints([job_id])
