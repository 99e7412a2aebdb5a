"""Operations on data sets, independent of the transport."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any

import msgspec
from anyio import to_thread

from recalib import registry
from recalib.contract.datasets import Dataset
from recalib.errors import ExistsError, InputError, TooLargeError
from recalib.files import MEDIA_TYPES, Input
from recalib.references import (
    MANIFEST_TYPE,
    DatasetRoots,
    Manifest,
    content_digest,
    list_referenced,
)
from recalib.registry import BlobWriter, Model, Registry, Transaction, check_name
from recalib.settings import Settings
from service.access.authenticator import current_principal
from service.datasets.schemas import DatasetReference
from service.datasets.survey import DatasetSummary, from_fields, survey_files, survey_url
from service.reader_pool import reader_pool
from service.upload_checks import count_numbers
from service.uploads import QUICK_NUMBERS, read_seconds, read_upload, receive

#: Wall time to list the files of a reference, and to open each of them.
_LIST_SECONDS, _OPEN_SECONDS = 60.0, 0.5
#: Files of a reference that are quick to read: float64.
_QUICK_BYTES = 8 * QUICK_NUMBERS
#: Wall time to check the files of a reference, at most. Others wait.
_MAX_CHECK_SECONDS = 1800.0


async def upload_dataset(
    store: Registry,
    model: str,
    name: str,
    kind: str,
    input: Input,
    pieces: AsyncIterable[bytes],
) -> tuple[Dataset, bool]:
    """Receive validation logits with labels; return the data set, and whether it is new.

    The reader process checks every row and computes the metrics before this returns. Uploading the
    same bytes under the same name again succeeds without effect.

    Parameters
    ----------
    kind: one of `recalib.files.MEDIA_TYPES`.
    pieces: the bytes of the file, in order.

    Raises
    ------
    InputError: the name is not valid, the body is empty, or the file is not valid.
    NotFoundError: no such model.
    ExistsError: other data has that name.
    """
    check_name("dataset", name)
    owner = await to_thread.run_sync(_find_model, store, model)
    with store.blobs.writer() as blob:
        await receive(pieces, blob, "logits and labels")
        layout: dict[str, Any] = {"class_names": owner.labels, "task": owner.task}
        layout |= {"format": MEDIA_TYPES[kind], "input": input}
        fields = await read_upload(survey_url, blob, count_numbers, layout, classes=owner.classes)
        summary = from_fields(fields)
        return await to_thread.run_sync(
            _register, store, owner, name, blob.size, kind, input, blob, summary
        )


async def reference_dataset(
    store: Registry,
    settings: Settings,
    model: str,
    name: str,
    input: Input,
    reference: DatasetReference,
) -> tuple[Dataset, bool]:
    """Register files that stay where they are; return the data set, and whether it is new.

    A reader process lists and opens the files. Files of at most `max_upload_bytes` together are
    checked as an upload is, every row. Of larger ones only the headers are read; a job checks their
    rows when it reads them. The same files under the same name again succeed without effect.

    Raises
    ------
    InputError: the name is not valid, the URI is outside of all roots, a file is not valid, or the
        contents have another digest.
    NotFoundError: no such model.
    ExistsError: other data has that name.
    UnavailableError: the files cannot be reached.
    LimitedError: too many references of the caller are read or wait.
    """
    check_name("dataset", name)
    owner = await to_thread.run_sync(_find_model, store, model)
    uri = reference.uri
    root = DatasetRoots(settings.dataset_roots).root_of(uri, owner.name)
    reader = reader_pool("references")
    files = await reader.run(list_referenced, seconds=_LIST_SECONDS, uri=uri, root=root)
    size = sum(file[1] for file in files)
    read_rows = size <= settings.max_upload_bytes
    if not read_rows and (owner.is_multilabel or reference.digest is not None):
        purpose = "a multilabel model" if owner.is_multilabel else "a reference with a digest"
        accepted = f"at most {settings.max_upload_bytes} bytes for {purpose}"
        raise TooLargeError("uri", found=f"{size} bytes", accepted=accepted)
    seconds = read_seconds(size if read_rows else 0) + _OPEN_SECONDS * len(files)
    survey: dict[str, Any] = await reader.run(
        survey_files,
        seconds=min(seconds, _MAX_CHECK_SECONDS),
        uri=uri,
        root=root,
        files=files,
        input=input,
        classes=owner.classes,
        task=owner.task,
        class_names=owner.labels,
        read_rows=read_rows,
        is_slow=size > _QUICK_BYTES,
    )
    manifest = msgspec.convert(survey["manifest"], Manifest)
    if reference.digest is not None:
        digest = content_digest(uri, manifest.files)
        if digest != reference.digest:
            raise InputError("digest", found=reference.digest, accepted=f"{digest}, of {uri}")
    summary = from_fields(survey["summary"])
    with store.blobs.writer() as blob:
        await to_thread.run_sync(blob.write, manifest.to_bytes())
        return await to_thread.run_sync(
            _register, store, owner, name, size, MANIFEST_TYPE, input, blob, summary, uri
        )


def register_dataset(
    tx: Transaction,
    model: Model,
    name: str,
    digest: str,
    size_bytes: int,
    media_type: str,
    input: Input,
    summary: DatasetSummary,
    uri: str | None = None,
) -> tuple[registry.Dataset, bool, list[str]]:
    """Record a data set under its name; return it, whether it is new, and warnings.

    Parameters
    ----------
    uri: of a data set by reference, whose blob is a manifest.

    Raises
    ------
    NotFoundError: the model was deleted during the upload.
    ExistsError: other data has that name.
    """
    tx.models.hold(model)
    existing = tx.datasets.find(model, name)
    if existing is not None:
        if existing.digest == digest and existing.input == input:
            return existing, False, _judge(tx, model, name, summary)
        raise ExistsError(
            f"dataset {name!r} of model {model.name!r} exists with other data "
            f"(sha256 {existing.digest[:12]}..., {existing.input}); choose another name"
        )
    dataset = tx.datasets.create(
        model,
        name,
        digest,
        summary.rows,
        summary.classes,
        size_bytes,
        media_type,
        input,
        summary.metrics,
        uri,
    )
    place = "" if uri is None else f" at {uri}"
    detail = f"{summary.rows} rows, {size_bytes} bytes{place}, sha256 {digest}"
    tx.audit.record(current_principal().name, "upload_dataset", model.name, name, detail)
    return dataset, True, _judge(tx, model, name, summary)


def _judge(tx: Transaction, model: Model, name: str, summary: DatasetSummary) -> list[str]:
    """Keep the scale of a data set; return why its rows may not be logits of the model."""
    if summary.scale is None:
        return []
    return [finding.warning for finding in tx.logit_scales.judge(model, name, summary.scale)]


def _find_model(store: Registry, name: str) -> Model:
    with store.reading() as tx:
        return tx.models.get(name)


def _register(
    store: Registry,
    model: Model,
    name: str,
    size_bytes: int,
    kind: str,
    input: Input,
    blob: BlobWriter,
    summary: DatasetSummary,
    uri: str | None = None,
) -> tuple[Dataset, bool]:
    """Store the blob, then record its name; return the data set, and whether it is new."""
    with store.storing(blob) as (tx, digest):
        row, is_new, warnings = register_dataset(
            tx, model, name, digest, size_bytes, kind, input, summary, uri
        )
    return Dataset.model_validate({**vars(row), "warnings": warnings}), is_new
