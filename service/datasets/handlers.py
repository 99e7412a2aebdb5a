"""What can be done with data sets; no transport here."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from anyio import to_thread

from recalib import registry
from recalib.errors import ExistsError, InputError
from recalib.files import MEDIA_TYPES, open_data
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.registry import BlobWriter, Model, Registry, Transaction, check_name
from service.access.authenticator import current_principal
from service.datasets.schemas import Dataset, DatasetPage
from service.pagination import decode_cursor, next_cursor

__all__ = [
    "Surveyed",
    "get_dataset",
    "list_datasets",
    "register_dataset",
    "survey",
    "upload_dataset",
]

#: Bytes gathered before a thread writes them: a hop costs as long as copying this much.
_BUFFER = 2**20


async def upload_dataset(
    store: Registry,
    model: str,
    name: str,
    kind: str,
    input: Literal["logits", "probabilities"],
    pieces: AsyncIterable[bytes],
) -> tuple[Dataset, bool]:
    """Receive validation logits with labels, of any size; return what they are, and whether new.

    Every row is checked and measured before the answer. The same bytes under the same name again
    are a success without effect.

    Parameters
    ----------
    kind: one of `recalib.files.MEDIA_TYPES`.
    pieces: the file's bytes, as they come.

    Raises
    ------
    InputError: a name that is not one, no bytes, or anything in the file that cannot be used.
    NotFoundError: no such model.
    ExistsError: other data has that name.
    """
    check_name("dataset", name)
    owner = await to_thread.run_sync(_owner, store, model)
    with store.blobs.writer() as blob:
        await _receive(pieces, blob)
        dataset, new = await to_thread.run_sync(_accept, store, owner, name, kind, input, blob)
    return Dataset.of(dataset), new


def list_datasets(tx: Transaction, model: str, limit: int, cursor: str | None) -> DatasetPage:
    """Return a page of a model's data sets, by name."""
    found = tx.datasets.page(tx.models.get(model), decode_cursor(cursor), limit + 1)
    more = next_cursor(found, limit, lambda one: one.name)
    return DatasetPage(items=[Dataset.of(one) for one in found[:limit]], next_cursor=more)


def get_dataset(tx: Transaction, model: str, name: str) -> Dataset:
    """Return one data set's description, or raise `NotFoundError`."""
    return Dataset.of(tx.datasets.get(tx.models.get(model), name))


@dataclass(frozen=True)
class Surveyed:
    """What one pass over an upload found; every row of it is good."""

    rows: int
    classes: int
    metrics: dict[str, dict[str, Any]]


def survey(
    file: BinaryIO,
    format: str,
    input: Literal["logits", "probabilities"],
    classes: int,
) -> Surveyed:
    """Check every row of an upload and measure it uncalibrated, in constant memory.

    Raises
    ------
    InputError: anything in the file that cannot be used, or K other than `classes`.
    """
    with open_data(file, format=format, input=input) as data:
        if data.classes != classes:
            raise InputError(
                input, found=f"{data.classes} classes", accepted=f"{classes}, as the model has"
            )
        evaluation = StreamingEvaluation(classes)
        rows = 0
        for chunk in data.chunks():
            if chunk.labels is None:
                raise InputError("labels", found="none", accepted="one label for each row")
            evaluation.add(chunk.labels, **{input: chunk.logits})
            rows += len(chunk.logits)
    metrics = {name: dataclasses.asdict(one) for name, one in evaluation.finish(0.95).items()}
    return Surveyed(rows, classes, metrics)


def register_dataset(
    tx: Transaction,
    model: Model,
    name: str,
    digest: str,
    size_bytes: int,
    media_type: str,
    input: Literal["logits", "probabilities"],
    found: Surveyed,
) -> tuple[registry.Dataset, bool]:
    """Give uploaded data its name; return it, and whether it is new.

    Raises
    ------
    ExistsError: other data has that name.
    """
    existing = tx.datasets.find(model, name)
    if existing is not None:
        if existing.digest == digest and existing.input == input:
            return existing, False
        raise ExistsError(
            f"dataset {name!r} of model {model.name!r} exists with other data "
            f"(sha256 {existing.digest[:12]}..., {existing.input}); choose another name"
        )
    dataset = tx.datasets.create(
        model, name, digest, found.rows, found.classes, size_bytes, media_type, input, found.metrics
    )
    said = f"{found.rows} rows, {size_bytes} bytes, sha256 {digest}"
    tx.audit.record(current_principal().name, "upload_dataset", model.name, name, said)
    return dataset, True


async def _receive(pieces: AsyncIterable[bytes], blob: BlobWriter) -> None:
    """Write what comes to `blob`, off the event loop."""
    gathered = bytearray()
    async for piece in pieces:
        gathered += piece
        if len(gathered) >= _BUFFER:
            await to_thread.run_sync(blob.write, bytes(gathered))
            gathered.clear()
    if gathered:
        await to_thread.run_sync(blob.write, bytes(gathered))
    elif blob.size == 0:
        raise InputError("body", found="nothing", accepted="a file with logits and labels")


def _owner(store: Registry, name: str) -> Model:
    with store.reading() as tx:
        return tx.models.get(name)


def _accept(
    store: Registry,
    model: Model,
    name: str,
    kind: str,
    input: Literal["logits", "probabilities"],
    blob: BlobWriter,
) -> tuple[registry.Dataset, bool]:
    """Check what was received, keep it, and only then give it its name."""
    with blob.open_temporary() as file:
        found = survey(file, MEDIA_TYPES[kind], input, model.classes)
    size = blob.size
    digest = blob.commit()
    with store.transaction() as tx:
        return register_dataset(tx, model, name, digest, size, kind, input, found)
