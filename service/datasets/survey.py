"""Check and measure an uploaded file. Runs in the reader process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from recalib.errors import InputError
from recalib.files import open_data
from recalib.metrics.evaluate import StreamingEvaluation
from service.upload_checks import check_classes, open_url

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
        check_classes(data, input, classes)
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
    with open_url(url) as file:
        return dataclasses.asdict(survey(file, format, input, classes))
