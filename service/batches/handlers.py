"""Operations on batches, independent of the transport."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from pydantic import BaseModel

from recalib import registry
from recalib.contract.jobs import Batch, Job
from recalib.errors import InputError
from recalib.files import MEDIA_TYPES, Input
from recalib.files.probabilities import ProbabilityFormat
from recalib.registry import Model, Registry, Transaction
from recalib.registry.job_kinds import BATCH
from service.access.authenticator import current_principal
from service.access.caller_jobs import enqueue
from service.batches.schemas import BatchCreate
from service.calibration import THRESHOLDS, missing_thresholds, versions_with_thresholds
from service.idempotency import run_once
from service.serving.loaded_calibrators import CHAMPION, UNCALIBRATED
from service.upload_checks import count_numbers, count_rows
from service.uploads import read_upload, receive, store_once
from service.versions import resolve_version


@dataclass(frozen=True)
class _Rows:
    """The rows of a batch."""

    digest: str
    media_type: str
    input: Input
    count: int
    #: None for uploaded rows.
    dataset: str | None


class BatchUpload(BaseModel):
    """A request with uploaded rows, which an idempotency key stands for."""

    #: A number, also as text, or an alias.
    version: int | str
    format: ProbabilityFormat
    input: Input
    sets: bool
    accepted: bool
    #: Of the rows, once they have been received.
    digest: str = ""


def create_batch(store: Registry, model: str, request: BatchCreate, key: str | None) -> Job:
    """Enqueue the calibration of a data set.

    Raises
    ------
    InputError: the version cannot take the rows.
    NotFoundError: no such model, data set or version.
    ConflictError: `key` was used with another request.
    """
    with store.transaction() as tx:
        owner = tx.models.get(model)

        def act() -> Job:
            tx.models.hold(owner)
            dataset = tx.datasets.get(owner, request.dataset)
            version = _resolve(tx, owner, request, dataset.input)
            rows = _Rows(
                dataset.digest, dataset.media_type, dataset.input, dataset.rows, dataset.name
            )
            return _enqueue(tx, owner, version, request, rows)

        return run_once(tx, key, f"create_batch {model}", request, 202, Job, act)


async def upload_batch(
    store: Registry,
    model: str,
    upload: BatchUpload,
    media_type: str,
    pieces: AsyncIterable[bytes],
    key: str | None,
) -> Job:
    """Receive rows, with or without labels, and enqueue their calibration.

    The reader process checks every row before this returns.

    Parameters
    ----------
    media_type: one of `recalib.files.MEDIA_TYPES`.
    pieces: the bytes of the file, in order.

    Raises
    ------
    InputError: the version cannot take the rows, an empty body, or a file that is not valid.
    NotFoundError: no such model or version.
    ConflictError: `key` was used with another request.
    """

    def check() -> Model:
        with store.reading() as tx:
            owner = tx.models.get(model)
            _resolve(tx, owner, upload, upload.input)
        return owner

    def act(tx: Transaction, digest: str) -> Job:
        tx.models.hold(owner)
        version = _resolve(tx, owner, upload, upload.input)
        rows = _Rows(digest, media_type, upload.input, count, None)
        return _enqueue(tx, owner, version, upload, rows)

    owner = await to_thread.run_sync(check)
    with store.blobs.writer() as blob:
        await receive(pieces, blob, upload.input)
        layout: dict[str, Any] = {"class_names": owner.labels, "task": owner.task}
        layout |= {"format": MEDIA_TYPES[media_type], "input": upload.input}
        count = await read_upload(count_rows, blob, count_numbers, layout, classes=owner.classes)
        request = upload.model_copy(update={"digest": blob.digest})
        scope = f"create_batch {model}"
        return await to_thread.run_sync(store_once, store, blob, key, scope, request, act)


def _resolve(
    tx: Transaction, model: Model, request: BatchCreate | BatchUpload, input: Input
) -> int | None:
    """Return the number of a version; None for the probabilities of a model without a champion."""
    name, number = request.version, None
    if not (name == CHAMPION and model.serve_uncalibrated) or tx.aliases.find(model, CHAMPION):
        number = resolve_version(tx, model, name, input, "version")
    card = {} if number is None else tx.calibrators.get(model, number).card
    if card.get("segments") is not None:
        accepted = "one without: `recalib apply` reads the column of a file"
        raise InputError("version", found=f"version {number}, with segments", accepted=accepted)
    for answer in ("sets", "accepted"):
        if getattr(request, answer) and card.get(THRESHOLDS[answer][2]) is None:
            others = versions_with_thresholds(tx, model, answer)
            raise missing_thresholds(answer, model.name, number, others)
    return number


def _enqueue(
    tx: Transaction,
    model: Model,
    version: int | None,
    request: BatchCreate | BatchUpload,
    rows: _Rows,
) -> Job:
    payload: dict[str, Any] = {
        "model": model.name,
        "dataset": rows.dataset,
        "version": version,
        "format": request.format,
        "input": rows.input,
        "rows": rows.count,
        "digest": rows.digest,
        "media_type": rows.media_type,
        "sets": request.sets,
    }
    if request.accepted:  # workers of earlier versions do not know it
        payload["accepted"] = True
    upload = {"upload": rows.digest} if rows.dataset is None else None
    job = enqueue(tx, BATCH, payload, model=model, checkpoint=upload)
    source = rows.dataset or f"an upload, sha256 {rows.digest}"
    name = UNCALIBRATED if version is None else f"version {version}"
    detail = f"{name} on {source}: {rows.count} rows"
    tx.audit.record(current_principal().name, "create_batch", model.name, job.id, detail)
    return Job.model_validate(job)


def batch_of(job: registry.Job) -> Batch:
    """Return the wire form of a batch job."""
    result = job.result or {}
    file: dict[str, Any] = next(iter(result.get("files", {}).values()), {})
    size = {"digest": file.get("digest"), "size_bytes": file.get("bytes")}
    mark = {UNCALIBRATED: job.payload["version"] is None}
    return Batch.model_validate({**job.payload, **vars(job), **size, **mark})
