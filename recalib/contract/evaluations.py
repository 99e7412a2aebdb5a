"""Evaluations: versions of a model, measured on a data set."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from recalib.contract.base import Page, Resource, Time, one_of
from recalib.contract.datasets import Estimate
from recalib.contract.jobs import JobState, Progress


class Change(Resource):
    """The value of a metric minus that of the baseline, on the same rows."""

    #: The difference.
    value: float
    #: Lower end of the 95% interval of the difference.
    low: float
    #: Upper end of it.
    high: float
    #: `unclear`: the interval holds 0. `none`: neither high nor low is good.
    verdict: Annotated[str, one_of(Literal["better", "worse", "unclear", "equal", "none"])]


class LabelResult(Resource):
    """The metrics of one label of a multilabel model."""

    #: Its name, or its number if the model has no names.
    label: str
    #: Metrics of the label.
    metrics: dict[str, Estimate]
    #: Differences from the baseline, as those of the version.
    changes: dict[str, Change]


class SegmentResult(Resource):
    """The metrics of one version on one segment of the rows."""

    #: Its column and value, such as `country=DE`.
    segment: str
    #: Number of its rows.
    rows: int
    #: Accuracy, mean confidence, NLL and ECE; the ECE of two classes is `binary_ece`. The intervals
    #: of a metric hold together with 95% for all segments of the data set.
    metrics: dict[str, Estimate]


class VersionResult(Resource):
    """The metrics of one version on the data set."""

    #: A number, or `identity`.
    version: str
    #: How many of the rows the version was fitted on: on these rows, its metrics are not evidence.
    #: null if it is not known.
    fitted_rows: int | None
    #: Of a multilabel model: four metrics, means over labels.
    metrics: dict[str, Estimate]
    #: Differences from the baseline, with paired intervals; empty for the baseline.
    changes: dict[str, Change]
    #: Metrics of each label of a multilabel model, in their order. Empty in lists.
    labels: list[LabelResult] = Field([])
    #: Metrics of each segment. Empty without segments, and in lists.
    segments: list[SegmentResult] = Field([])


class EvaluationPicture(Resource):
    """A picture of one version, or of the baseline and another."""

    #: Title of the picture.
    title: str
    #: What it shows.
    caption: str
    #: The versions that it shows.
    versions: list[str]
    #: Vega-Lite specification.
    specification: dict[str, Any]


class Evaluation(Resource):
    """Versions of a model on a data set. Its id is that of the job."""

    #: Id of the job.
    id: str
    #: Name of the model.
    model: str
    #: Name of the data set.
    dataset: str
    #: Numbers, or `identity`; the first is the baseline.
    versions: list[str]
    #: Columns of segments.
    segments: list[str] = Field([])
    #: State of the job.
    state: Annotated[str, one_of(JobState)]
    #: How far the job is; null before it starts.
    progress: Progress | None
    #: Why the job has failed; null otherwise.
    error: str | None
    #: N; null until the job has succeeded.
    rows: int | None
    #: Empty until the job has succeeded.
    results: list[VersionResult]
    #: Versions that were fitted on these rows, in sentences.
    warnings: list[str]
    #: Empty in lists.
    pictures: list[EvaluationPicture]
    #: When it was created.
    created_at: Time
    #: When the job has ended; null before.
    finished_at: Time | None


class EvaluationPage(Page[Evaluation]):
    """A page of evaluations, newest first."""
