"""Operations on batches, independent of the transport."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass
from typing import Any

from anyio import to_thread
from pydantic import BaseModel

from recalib import registry
from recalib.contract.jobs import Batch, Job
from recalib.errors import NotFoundError
from recalib.files import MEDIA_TYPES, Input
from recalib.files.probabilities import ProbabilityFormat
from recalib.registry import BlobWriter, Model, Registry, Transaction
from recalib.registry.job_kinds import BATCH
from service.access.authenticator import current_principal
from service.access.job_queue import enqueue
from service.access.visible_jobs import job_of_model
from service.batches.schemas import BatchCreate
from service.calibration import THRESHOLDS, missing_thresholds, versions_with_thresholds
from service.idempotency import run_once
from service.serving.loaded_calibrators import CHAMPION, UNCALIBRATED
from service.upload_checks import count_numbers, count_rows
from service.uploads import read_upload, receive
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


class _Upload(BaseModel):
    """A request with uploaded rows, which an idempotency key stands for."""

    version: int | str
    format: str
    input: str
    sets: bool
    accepted: bool
    digest: str


def create_batch(tx: Transaction, model: str, request: BatchCreate, key: str | None) -> Job:
    """Enqueue the calibration of a data set.

    Raises
    ------
    InputError: the version cannot take the rows.
    NotFoundError: no such model, data set or version.
    ConflictError: `key` was used with another request.
    """
    owner = tx.models.get(model)
    answers = {"sets": request.sets, "accepted": request.accepted}

    def act() -> Job:
        tx.models.hold(owner)
        dataset = tx.datasets.get(owner, request.dataset)
        version = _resolve(tx, owner, request.version, dataset.input, answers)
        rows = _Rows(dataset.digest, dataset.media_type, dataset.input, dataset.rows, dataset.name)
        return _enqueue(tx, owner, version, request.format, answers, rows)

    return run_once(tx, key, f"create_batch {model}", request, 202, Job, act)


async def upload_batch(
    store: Registry,
    model: str,
    version: int | str,
    format: ProbabilityFormat,
    input: Input,
    sets: bool,
    accepted: bool,
    media_type: str,
    pieces: AsyncIterable[bytes],
    key: str | None,
) -> Job:
    """Receive rows, with or without labels, and enqueue their calibration.

    The reader process checks every row before this returns.

    Parameters
    ----------
    version: a number, also as text, or an alias.
    media_type: one of `recalib.files.MEDIA_TYPES`.
    pieces: the bytes of the file, in order.

    Raises
    ------
    InputError: the version cannot take the rows, an empty body, or a file that is not valid.
    NotFoundError: no such model or version.
    ConflictError: `key` was used with another request.
    """
    answers = {"sets": sets, "accepted": accepted}

    def check() -> Model:
        with store.reading() as tx:
            owner = tx.models.get(model)
            _resolve(tx, owner, version, input, answers)
        return owner

    def register(blob: BlobWriter, owner: Model, count: int) -> Job:
        request = _Upload(
            version=version, format=format, input=input, **answers, digest=blob.digest
        )
        rows = _Rows(blob.digest, media_type, input, count, None)
        with store.storing(blob) as (tx, digest):

            def act() -> Job:
                tx.models.hold(owner)
                number = _resolve(tx, owner, version, input, answers)
                return _enqueue(tx, owner, number, format, answers, rows)

            job = run_once(tx, key, f"create_batch {model}", request, 202, Job, act)
        if key is not None and blob.is_new:
            # A repeated request whose job has ended: nothing needs its rows.
            store.remove_unreferenced(digest)
        return job

    owner = await to_thread.run_sync(check)
    with store.blobs.writer() as blob:
        await receive(pieces, blob, input)
        layout: dict[str, Any] = {"class_names": owner.labels, "task": owner.task}
        layout |= {"format": MEDIA_TYPES[media_type], "input": input}
        count = await read_upload(count_rows, blob, count_numbers, layout, classes=owner.classes)
        return await to_thread.run_sync(register, blob, owner, count)


def get_batch_content(store: Registry, model: str, id: str) -> tuple[Batch, Iterator[bytes]]:
    """Return a batch and its file, in chunks.

    Raises
    ------
    NotFoundError: no such batch, or it has not succeeded.
    """
    with store.reading() as tx:
        batch = batch_of(job_of_model(tx, model, BATCH, id))
    if batch.digest is None:
        raise NotFoundError("file of batch", id, hint=f"the batch is {batch.state}")
    return batch, store.blobs.read_chunks(batch.digest)


def _resolve(
    tx: Transaction, model: Model, name: int | str, input: Input, answers: dict[str, bool]
) -> int | None:
    """Return the number of a version; None for the probabilities of a model without a champion."""
    number = None
    if not (name == CHAMPION and model.serve_uncalibrated) or tx.aliases.find(model, CHAMPION):
        number = resolve_version(tx, model, name, input, "version")
    for answer in (answer for answer, is_asked in answers.items() if is_asked):
        card = {} if number is None else tx.calibrators.get(model, number).card
        if card.get(THRESHOLDS[answer][2]) is None:
            others = versions_with_thresholds(tx, model, answer)
            raise missing_thresholds(answer, model.name, number, others)
    return number


def _enqueue(
    tx: Transaction,
    model: Model,
    version: int | None,
    format: ProbabilityFormat,
    answers: dict[str, bool],
    rows: _Rows,
) -> Job:
    payload: dict[str, Any] = {
        "model": model.name,
        "dataset": rows.dataset,
        "version": version,
        "format": format,
        "input": rows.input,
        "rows": rows.count,
        "digest": rows.digest,
        "media_type": rows.media_type,
        "sets": answers["sets"],
    }
    if answers["accepted"]:  # workers of earlier versions do not know it
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
