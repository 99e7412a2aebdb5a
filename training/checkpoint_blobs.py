"""Checkpoints of training jobs, as blobs, so that any worker can go on from them.

A job's checkpoint is ``{"digest": ..., "others": [...]}``: the blob to go on from, absent before
there is one, and blobs that may be there or not and are no longer, or not yet, what counts. A blob
is named before it is stored and until it is gone: whoever is killed in between leaves nothing that
the next attempt, or `sweep_checkpoints`, does not find.
"""

from __future__ import annotations

from recalib.errors import FencedError
from recalib.registry import Registry
from training.job_context import JobContext

__all__ = ["CheckpointBlobs", "sweep_checkpoints"]


class CheckpointBlobs:
    """The newest checkpoint of a job, kept under its lease."""

    def __init__(self, context: JobContext) -> None:
        self._context, self._blobs = context, context.registry.blobs
        # Before the checkpoint: two runs of one recipe, or two attempts at a job, leave the same
        # bytes, and a blob that both had would be removed by the first that needs it no more.
        self._head = f"{context.lease.job.id} {context.lease.fence}\n".encode()
        before = context.checkpoint or {}
        self._kept: str | None = before.get("digest")
        self._others: list[str] = before.get("others", [])
        self._remove_others()
        #: Whether nothing more is to be kept: nobody would go on from it.
        self.closed = False

    def load(self) -> bytes | None:
        """Return what an earlier attempt left."""
        if self._kept is None:
            return None
        with self._blobs.open(self._kept) as file:
            return file.read().partition(b"\n")[2]

    def save(self, data: bytes) -> None:
        """Keep a checkpoint; the one before goes once the job knows the new one.

        Raises
        ------
        FencedError: another worker has the job; it is left as it is, and nothing of this stays.
        UnavailableError: no room; the one before stands.
        """
        if self.closed:
            return
        before = self._kept
        with self._blobs.writer() as blob:
            blob.write(self._head + data)
            digest = blob.digest
            if digest == before:
                return
            self._others = [*self._others, digest]
            self._tell(before, self._others)
            blob.commit()
        old = [one for one in (*self._others, before) if one and one != digest]
        try:
            self._tell(digest, old)
        except FencedError:
            self._blobs.remove(digest)
            raise
        self._kept, self._others = digest, old
        self._remove_others()

    def clear(self) -> None:
        """Remove the checkpoint of a job that is over."""
        if self._kept is not None:
            self._blobs.remove(self._kept)
            self._kept = None

    def _tell(self, digest: str | None, others: list[str]) -> None:
        counts = {} if digest is None else {"digest": digest}
        self._context.save_checkpoint({**counts, "others": others})

    def _remove_others(self) -> None:
        for one in self._others:
            self._blobs.remove(one)
        self._others = []


def sweep_checkpoints(registry: Registry) -> int:
    """Remove what jobs that are over have left; return of how many jobs.

    Of those that failed, were cancelled in the queue, or ended with their worker. To do it twice,
    or at once with another, does no harm.
    """
    with registry.reading() as tx:
        left = tx.jobs.leftover_checkpoints()
    for checkpoint in left.values():
        for digest in (checkpoint.get("digest"), *checkpoint.get("others", [])):
            if digest is not None:
                registry.blobs.remove(digest)
    if left:
        with registry.transaction() as tx:
            tx.jobs.clear_checkpoints(list(left))
    return len(left)
