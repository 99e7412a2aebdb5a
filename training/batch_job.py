"""The batch job: calibrate all rows of a file, part by part, and store the result as a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.decoding import converted
from recalib.errors import InputError
from recalib.files import MEDIA_TYPES, DataFile, Input, open_data
from recalib.files.probabilities import ProbabilityFormat, write_probabilities
from training.batch_parts import BatchParts
from training.checkpoint_blobs import sweep_job
from training.worker import Cancelled, JobContext

__all__ = ["run_batch"]

#: Logits that are read and calibrated at a time, and rows that are copied at a time, in bytes.
_CHUNK_BYTES = 8 << 20
#: A part holds at least this much, unless it is the last. A killed worker loses at most a part.
_PART_BYTES = 32 << 20
#: Progress when all rows are calibrated; the rest is writing the file.
_CALIBRATED = 0.9


class BatchRequest(msgspec.Struct, frozen=True):
    """The payload of a batch job."""

    model: str
    version: int
    format: ProbabilityFormat
    input: Input
    #: N.
    rows: int
    #: Of the rows: the blob, and its content type.
    digest: str
    media_type: str


def run_batch(context: JobContext) -> None:
    """Calibrate the rows that have no part yet, and join the parts to a file.

    Memory is bounded by the sizes of chunks, not by that of the file. An attempt that ends early
    leaves its parts; the result is the same, bit for bit, wherever it ended.
    """
    # 1. The request.
    try:
        request = converted(context.payload, BatchRequest)
    except msgspec.ValidationError as error:
        accepted = "the fields of a batch"
        raise InputError("payload", found=str(error), accepted=accepted) from None
    registry = context.registry
    with registry.reading() as tx:
        model = tx.models.get(request.model)
        calibrator = Calibrator.from_bytes(tx.calibrators.parameters(model, request.version))

    with registry.blobs.open(request.digest) as stream:
        format = MEDIA_TYPES[request.media_type]
        with open_data(stream, format=format, input=request.input) as file:
            # 2. The parts.
            dtype = np.dtype("<f8" if file.dtype == np.float64 else "<f4")
            parts = BatchParts(context, model.classes, dtype)
            try:
                if not parts.rows:
                    context.progress(0.0, "checking the file")
                    registry.blobs.verify(request.digest)
                _calibrate(context, request, calibrator, file, parts, dtype)
                # 3. The file, in the transaction that finishes the job.
                _join(context, request, parts, (request.rows, model.classes), dtype)
            except Cancelled as cancelled:
                if cancelled.reason == "cancelled":
                    parts.remove()
                raise
    sweep_job(registry, context.lease.job.id)


def _calibrate(
    context: JobContext,
    request: BatchRequest,
    calibrator: Calibrator,
    file: DataFile,
    parts: BatchParts,
    dtype: np.dtype[Any],
) -> None:
    """Store a part for each group of chunks from the first row without one."""
    chunks = _probabilities(context, request, calibrator, file, parts.rows, dtype)
    chunk = next(chunks, None)
    while chunk is not None:
        with context.registry.blobs.writer() as blob:
            parts.begin(blob)
            rows = 0
            while chunk is not None and blob.size < _PART_BYTES:
                blob.write(chunk.tobytes())
                rows += len(chunk)
                chunk = next(chunks, None)
            parts.add(blob, rows)


def _probabilities(
    context: JobContext,
    request: BatchRequest,
    calibrator: Calibrator,
    file: DataFile,
    first_row: int,
    dtype: np.dtype[Any],
) -> Iterator[NDArray[Any]]:
    """Yield the probabilities of each chunk from `first_row` on.

    Parts end where chunks end, so an attempt calibrates the same chunks as the one before.
    """
    for chunk in file.chunks(_CHUNK_BYTES):
        context.check_cancelled()
        if chunk.first_row < first_row:
            continue
        share = _CALIBRATED * chunk.first_row / request.rows
        context.progress(share, f"{chunk.first_row:,} of {request.rows:,} rows")
        yield calibrator.predict(chunk.logits, input=request.input).astype(dtype, copy=False)


def _join(
    context: JobContext,
    request: BatchRequest,
    parts: BatchParts,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
) -> None:
    registry = context.registry

    def pieces() -> Iterator[NDArray[Any]]:
        rows = 0
        for piece in parts.pieces(_CHUNK_BYTES):
            context.check_cancelled()
            share = _CALIBRATED + (1 - _CALIBRATED) * rows / request.rows
            context.progress(share, "writing the file")
            rows += len(piece)
            yield piece

    with registry.blobs.writer() as blob:
        write_probabilities(blob.write, request.format, pieces(), shape, dtype)
        size = blob.size
        with registry.storing(blob, context.finishing) as (tx, digest):
            files = {f"probabilities.{request.format}": {"digest": digest, "bytes": size}}
            result = {"version": request.version, "rows": request.rows, "files": files}
            tx.jobs.succeed(context.lease, result)
