"""Check and measure an uploaded or referenced file. Runs in the reader process."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec
from numpy.typing import NDArray

from recalib.core.arrays import Floats, log_probabilities
from recalib.core.label_arrays import label_log_odds
from recalib.errors import CorruptError, EmptyError, InputError
from recalib.files import DataFile, DataSelection, Input, Task, format_of, open_data
from recalib.files.fragments import Fragment, open_stream
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.metrics.multilabel import StreamingLabelEvaluation
from recalib.references import (
    Manifest,
    ReferencedFile,
    outage_errors,
    sha256_of,
)
from recalib.stats.logit_scale import LogitScale, ScaleSums
from service.upload_checks import check_classes, open_url


@dataclass(frozen=True)
class DatasetSummary:
    """Size and uncalibrated metrics of a data set, every row of which is valid."""

    rows: int
    classes: int
    metrics: dict[str, dict[str, Any]]
    #: None if no row was read.
    scale: LogitScale | None = None


def survey(
    file: BinaryIO,
    format: str,
    input: Input,
    classes: int,
    task: Task = "multiclass",
    class_names: tuple[str, ...] | None = None,
) -> DatasetSummary:
    """Check every row of a file and compute its uncalibrated metrics, in constant memory.

    Raises
    ------
    InputError: the file is not valid, has no labels, or has another K than `classes`.
    """
    metrics = _Metrics(input, classes, task)
    selection = DataSelection.of_classes(class_names)
    with open_data(file, format=format, input=input, task=task, selection=selection) as data:
        rows = metrics.add(data)
    return DatasetSummary(rows, classes, metrics.finish(), metrics.scale.finish())


def survey_url(
    url: str,
    format: str,
    input: Input,
    classes: int,
    task: Task = "multiclass",
    class_names: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Survey the file at an fsspec URL; return its `DatasetSummary`, in built-in types."""
    with open_url(url) as file:
        return to_fields(survey(file, format, input, classes, task, class_names))


def to_fields(summary: DatasetSummary) -> dict[str, Any]:
    """Return a summary in built-in types, for `from_fields`."""
    return msgspec.to_builtins(summary, str_keys=True)


def from_fields(fields: dict[str, Any]) -> DatasetSummary:
    """Return the summary that the reader process has sent."""
    return msgspec.convert(fields, DatasetSummary, str_keys=True)


def survey_files(
    uri: str,
    root: str,
    files: Sequence[Sequence[Any]],
    input: Input,
    classes: int,
    task: Task,
    class_names: tuple[str, ...] | None,
    read_rows: bool,
) -> dict[str, Any]:
    """Check the files of a data set by reference; return its manifest and its metrics.

    Parameters
    ----------
    files: what `list_referenced` returned.
    read_rows: check and measure every row, and digest the contents. Otherwise only the headers are
        read, and there are no metrics.

    Raises
    ------
    InputError: a file is not valid, has no labels or another K than `classes`, or changes
        meanwhile; no file has rows; or the header of a file that is not read has no number of rows.
    UnavailableError: the file system cannot be reached.
    """
    metrics = _Metrics(input, classes, task)
    options: dict[str, Any] = {"input": input, "task": task}
    options["selection"] = DataSelection.of_classes(class_names)
    checked: list[ReferencedFile] = []
    for location, size, version in files:
        format = format_of(None, location)
        rows, dtype = 0, ""
        with outage_errors(uri), Fragment(location, format).named_errors():
            with (
                suppress(EmptyError),
                open_stream(location) as stream,
                open_data(stream, format=format, **options) as data,
            ):
                rows = metrics.add(data) if read_rows else _rows_of_header(data, input, classes)
                dtype = data.dtype.name
            digest = sha256_of(location) if read_rows else None
        checked.append(ReferencedFile(location, size, version, format, dtype, rows, digest))
    if not any(file.rows for file in checked):
        raise EmptyError("uri", found=f"no rows at {uri}", accepted="at least one row")
    manifest = Manifest(uri, root, classes, tuple(checked))
    try:
        manifest.check_unchanged()
    except CorruptError as error:
        accepted = "files that do not change while they are read"
        raise InputError("uri", found=str(error), accepted=accepted) from error
    summary = DatasetSummary(manifest.rows, classes, {})
    if read_rows:
        summary = dataclasses.replace(
            summary, metrics=metrics.finish(), scale=metrics.scale.finish()
        )
    return {"manifest": msgspec.to_builtins(manifest), "summary": to_fields(summary)}


class _Metrics:
    """Uncalibrated metrics of the rows of files."""

    def __init__(self, input: Input, classes: int, task: Task) -> None:
        self._input: Input = input
        self._classes, self._is_multilabel = classes, task == "multilabel"
        self.scale = ScaleSums(classes)
        self._evaluation: StreamingEvaluation | StreamingLabelEvaluation = (
            StreamingLabelEvaluation(classes)
            if task == "multilabel"
            else StreamingEvaluation(classes)
        )

    def add(self, data: DataFile) -> int:
        """Check and add every row; return the number of rows."""
        check_classes(data, self._input, self._classes)
        rows = 0
        for chunk in data.chunks():
            if chunk.labels is None:
                raise _no_labels()
            values: dict[str, Any] = {self._input: chunk.logits}
            self._evaluation.add(chunk.labels, **values)
            self._add_scale(chunk.logits, chunk.labels)
            rows += len(chunk.logits)
        return rows

    def _add_scale(self, values: Floats, labels: NDArray[Any]) -> None:
        if self._input == "probabilities":
            to_logits = label_log_odds if self._is_multilabel else log_probabilities
            values = to_logits(values)
        self.scale.add(values, labels, declared=self._input == "logits")

    def finish(self) -> dict[str, dict[str, Any]]:
        """Return the fields of each estimate."""
        if isinstance(self._evaluation, StreamingLabelEvaluation):
            estimates = self._evaluation.finish()
        else:
            estimates = self._evaluation.finish(0.95)
        return {name: dataclasses.asdict(estimate) for name, estimate in estimates.items()}


def _rows_of_header(data: DataFile, input: Input, classes: int) -> int:
    check_classes(data, input, classes)
    if not data.has_labels:
        raise _no_labels()
    if data.rows is None:
        raise InputError(
            input,
            found=f"a {data.name} file, whose header has no number of rows",
            accepted="Parquet, npz or safetensors, for a data set that is larger than an upload",
        )
    return data.rows


def _no_labels() -> InputError:
    accepted = "a column or array labels, label, y_true or ground_truth, with a label for each row"
    return InputError("labels", found="none", accepted=accepted)
