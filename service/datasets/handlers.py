"""What can be done with data sets; no transport here."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from recalib.errors import ConflictError, InputError
from recalib.files import open_data
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.registry import Dataset, Model, Transaction

__all__ = ["Surveyed", "register_dataset", "survey"]


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
) -> tuple[Dataset, bool]:
    """Give uploaded data its name; return it, and whether it is new.

    Raises
    ------
    ConflictError: other data has that name.
    """
    existing = tx.datasets.find(model, name)
    if existing is not None:
        if existing.digest == digest and existing.input == input:
            return existing, False
        raise ConflictError(
            f"dataset {name!r} of model {model.name!r} exists with other data "
            f"(sha256 {existing.digest[:12]}..., {existing.input}); choose another name"
        )
    dataset = tx.datasets.create(
        model, name, digest, found.rows, found.classes, size_bytes, media_type, input, found.metrics
    )
    return dataset, True
