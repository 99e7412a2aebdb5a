"""The batch job: calibrate all rows of a file, part by part, and store the result as a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator, identity_calibrator
from recalib.core.arrays import Floats
from recalib.files import MEDIA_TYPES, DataFile, DataSelection, Input, open_data
from recalib.files.fragments import Fragment, list_fragments
from recalib.files.probabilities import ProbabilityFormat, answer_dtype, write_probabilities
from recalib.references import MANIFEST_TYPE, ReferencedRows, check_content, unchanged
from recalib.registry import BlobStore, Model, Registry
from recalib.sets.rejection import accepts
from training.batch_parts import BatchParts, StoredPart
from training.checkpoint_blobs import sweep_job
from training.dataset_rows import read_manifest
from training.large_datasets import IN_MEMORY, ClusterPolicy, job_workers
from training.worker import Cancelled, JobContext

#: Logits that are read and calibrated at a time, and rows that are copied at a time, in bytes.
_CHUNK_BYTES = 8 << 20
#: A part holds at least this much, unless it is the last. A killed worker loses at most a part.
_PART_BYTES = 32 << 20
#: Progress when all rows are calibrated; the rest is writing the file.
_CALIBRATED = 0.9

_Answer = Callable[[Floats], NDArray[Any]]


class BatchRequest(msgspec.Struct, frozen=True):
    """The payload of a batch job."""

    model: str
    #: None for the probabilities of the classifier, of a model without a champion.
    version: int | None
    format: ProbabilityFormat
    input: Input
    #: N.
    rows: int
    #: Of the rows: the blob, which is a manifest for a data set by reference, and its content type.
    digest: str
    media_type: str
    #: Whether the result has prediction sets, and says which rows are accepted.
    sets: bool = False
    accepted: bool = False


def run_batch(
    context: JobContext,
    pause: Callable[[], object] = lambda: None,
    policy: ClusterPolicy = IN_MEMORY,
) -> None:
    """Calibrate the rows that have no part yet, and join the parts to a file.

    Memory is bounded by the sizes of chunks, not by that of the file. An attempt that ends early
    leaves its parts; the result is the same, bit for bit, wherever it ended.

    Parameters
    ----------
    pause: called between two chunks or parts, so that a worker can run short jobs during a batch of
        hours.
    policy: which files are calibrated in parts on a cluster, if they can be divided; files of
        multilabel models never are.
    """
    request = context.request(BatchRequest)
    registry = context.registry
    with registry.reading() as tx:
        model = tx.models.get(request.model)
        if request.version is None:
            calibrator = identity_calibrator(model.classes, model.labels, model.task)
        else:
            calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, request.version))
    selection = DataSelection.of_classes(model.labels)
    with _open_rows(registry, request, model, selection) as (file, size):
        attempt = _Attempt(context, pause, request, calibrator, file, selection)
        try:
            attempt.calibrate(IN_MEMORY if model.is_multilabel else policy, size)
            attempt.join()
        except Cancelled as cancelled:
            if cancelled.reason == "cancelled":
                attempt.parts.remove()
            raise
    sweep_job(registry, context.lease.job.id)


@contextmanager
def _open_rows(
    registry: Registry, request: BatchRequest, model: Model, selection: DataSelection
) -> Iterator[tuple[DataFile | ReferencedRows, int]]:
    """Open the rows of a blob, or of the files that it lists; yield them and their bytes."""
    if request.media_type == MANIFEST_TYPE:
        manifest = read_manifest(registry, request.digest)
        yield ReferencedRows(manifest, request.input, model.task, selection), manifest.size
        return
    options: dict[str, Any] = {"input": request.input, "task": model.task}
    options |= {"format": MEDIA_TYPES[request.media_type], "selection": selection}
    with registry.blobs.open(request.digest) as stream, open_data(stream, **options) as file:
        yield file, stream.seek(0, os.SEEK_END)


class _Attempt:
    """One attempt at a batch; N rows, K classes."""

    def __init__(
        self,
        context: JobContext,
        pause: Callable[[], object],
        request: BatchRequest,
        calibrator: Calibrator,
        file: DataFile | ReferencedRows,
        selection: DataSelection,
    ) -> None:
        self._context, self._pause, self._request = context, pause, request
        self._file, self._selection = file, selection
        kind = np.dtype("<f8" if file.dtype == np.float64 else "<f4")
        self._dtype = answer_dtype(file.classes, kind, sets=request.sets, accepted=request.accepted)
        self._answer: _Answer = partial(_answer, calibrator, request.input, self._dtype)
        self.parts = BatchParts(context, self._dtype)

    def calibrate(self, policy: ClusterPolicy, size: int) -> None:
        """Store a part for each fragment or group of chunks, from the first row without one.

        Parameters
        ----------
        size: bytes of the file.
        """
        file = self._file
        with unchanged(file.manifest) if isinstance(file, ReferencedRows) else nullcontext():
            if not self.parts.rows:
                self._context.progress(0.0, "checking the file")
                self._check_content()
            self._add_parts(policy, size)

    def _add_parts(self, policy: ClusterPolicy, size: int) -> None:
        # The next attempt continues with the same parts.
        if self.parts.divided or (not self.parts.rows and policy.divides(size)):
            fragments = self._fragments()
            if self.parts.divided or len(fragments) > 1:
                self._calibrate_fragments(fragments, policy.cluster)
                return
        self._calibrate_here()

    def _check_content(self) -> None:
        """Raise `CorruptError` if the rows are not those that were checked."""
        if isinstance(self._file, ReferencedRows):
            for file in self._file.manifest.files:
                check_content(file)
                self._context.check_cancelled()
        else:
            self._context.registry.blobs.verify(self._request.digest)

    def _fragments(self) -> list[Fragment]:
        if isinstance(self._file, ReferencedRows):
            return self._file.manifest.fragments(self._selection, _PART_BYTES)
        location = self._context.registry.blobs.location(self._request.digest)
        format = MEDIA_TYPES[self._request.media_type]
        return list_fragments(
            location, format=format, max_bytes=_PART_BYTES, selection=self._selection
        )

    def _calibrate_fragments(self, fragments: list[Fragment], cluster: str | None) -> None:
        request, parts = self._request, self.parts
        tasks = [(parts.header(k), fragment) for k, fragment in enumerate(fragments)]
        url = self._context.registry.blobs.url
        work = partial(_store_part, url, self._answer, request.input)
        with job_workers(self._context, cluster) as workers:
            for part in workers.map(work, tasks[len(parts) :]):
                parts.add_stored(part)
                self._step(0.0, parts.rows, "calibrating")

    def _calibrate_here(self) -> None:
        blobs = self._context.registry.blobs
        chunks = self._answers(self.parts.rows)
        chunk = next(chunks, None)
        while chunk is not None:
            with blobs.writer() as blob:
                blob.write(self.parts.header(len(self.parts)))
                rows = 0
                while chunk is not None and blob.size < _PART_BYTES:
                    blob.write(chunk.tobytes())
                    rows += len(chunk)
                    chunk = next(chunks, None)
                self.parts.add(blob, rows)

    def join(self) -> None:
        """Write the file, and record it in the transaction that finishes the job."""
        request, registry = self._request, self._context.registry
        with registry.blobs.writer() as blob:
            write_probabilities(blob.write, request.format, self._pieces, request.rows, self._dtype)
            size = blob.size
            with registry.storing(blob, self._context.finishing) as (tx, digest):
                files = {f"probabilities.{request.format}": {"digest": digest, "bytes": size}}
                result = {"version": request.version, "rows": request.rows, "files": files}
                result |= {"uncalibrated": True} if request.version is None else {}
                tx.jobs.succeed(self._context.lease, result)

    def _answers(self, first_row: int) -> Iterator[NDArray[Any]]:
        """Yield the answers (n,) to each chunk from `first_row` on.

        Parts end where chunks end, so each attempt calibrates the same chunks.
        """
        for chunk in self._file.chunks(_CHUNK_BYTES):
            self._step(0.0, chunk.first_row, "calibrating")
            if chunk.first_row >= first_row:
                yield self._answer(chunk.logits)

    def _pieces(self) -> Iterator[NDArray[Any]]:
        """Yield all answers from the parts."""
        row = 0
        for piece in self.parts.pieces(_CHUNK_BYTES):
            self._step(_CALIBRATED, row, "writing")
            row += len(piece)
            yield piece

    def _step(self, begin: float, row: int, verb: str) -> None:
        """Run short jobs, end a cancelled job, and report the progress.

        Parameters
        ----------
        begin: progress at the first row of this pass over the rows.
        """
        self._pause()
        self._context.check_cancelled()
        length = 1 - _CALIBRATED if begin else _CALIBRATED
        message = f"{verb}: {row:,} of {self._request.rows:,} rows"
        self._context.progress(begin + length * row / self._request.rows, message)


def _answer(
    calibrator: Calibrator, kind: Input, dtype: np.dtype[Any], scores: Floats
) -> NDArray[Any]:
    """Return the answers (n,) to scores (n, K)."""
    answers = np.empty(len(scores), dtype)
    answers["probabilities"] = calibrator.predict(scores, input=kind)
    if "sets" in (dtype.names or ()):
        logits = calibrator.to_logits(scores, kind)
        answers["sets"] = calibrator.sets_of(answers["probabilities"], logits)
    if (rule := calibrator.card.rejection) and "accepted" in (dtype.names or ()):
        answers["accepted"] = accepts(answers["probabilities"], rule)
    return answers


def _store_part(url: str, answer: _Answer, kind: Input, task: tuple[bytes, Fragment]) -> StoredPart:
    """Calibrate a fragment, on a worker of a cluster, and leave the part to a sweep."""
    header, fragment = task
    rows = 0
    with fragment.open(kind) as file, BlobStore(url).writer() as blob:
        blob.write(header)
        for chunk in file.chunks(_CHUNK_BYTES):
            answers = answer(chunk.logits)
            blob.write(answers.tobytes())
            rows += len(answers)
        digest = blob.commit()
        return StoredPart(digest, rows, blob.abandon())
