"""Check and measure an uploaded file. Runs in the reader process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from recalib.errors import InputError
from recalib.files import open_data
from recalib.metrics.evaluate import StreamingEvaluation

__all__ = ["DatasetSummary", "survey", "survey_url"]


@dataclass(frozen=True)
class DatasetSummary:
    """Size and uncalibrated metrics of a data set, every row of which is valid."""

    rows: int
    classes: int
    metrics: dict[str, dict[str, Any]]


def survey(
    file: BinaryIO,
    format: str,
    input: Literal["logits", "probabilities"],
    classes: int,
) -> DatasetSummary:
    """Check every row of a file and compute its uncalibrated metrics, in constant memory.

    Raises
    ------
    InputError: the file is not valid, has no labels, or has another K than `classes`.
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
    estimates = evaluation.finish(0.95)
    metrics = {name: dataclasses.asdict(estimate) for name, estimate in estimates.items()}
    return DatasetSummary(rows, classes, metrics)


def survey_url(
    url: str, format: str, input: Literal["logits", "probabilities"], classes: int
) -> dict[str, Any]:
    """Survey the file at an fsspec URL; return the fields of its `DatasetSummary`."""
    with _open(url) as file:
        return dataclasses.asdict(survey(file, format, input, classes))


def _open(url: str) -> BinaryIO:
    protocol, _, path = url.partition("://")
    if protocol == "file":
        return Path(path).open("rb")
    import fsspec  # only for buckets: it takes 60 ms to import

    return cast(BinaryIO, fsspec.filesystem(protocol, use_listings_cache=False).open(path, "rb"))
