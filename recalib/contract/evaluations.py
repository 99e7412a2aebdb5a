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
    low: float = Field(description="Lower end of the 95% interval of the difference.")
    #: Upper end of it.
    high: float
    verdict: Annotated[str, one_of(Literal["better", "worse", "unclear", "equal", "none"])] = Field(
        description="`unclear`: the interval holds 0. `none`: neither high nor low is good."
    )


class LabelResult(Resource):
    """The metrics of one label of a multilabel model."""

    label: str = Field(description="Its name, or its number if the model has no names.")
    #: Metrics of the label.
    metrics: dict[str, Estimate]
    changes: dict[str, Change] = Field(
        description="Differences from the baseline, as those of the version."
    )


class VersionResult(Resource):
    """The metrics of one version on the data set."""

    version: str = Field(description="A number, or `identity`.")
    fitted_rows: int | None = Field(
        description="How many of the rows the version was fitted on: on these rows, its metrics "
        "are not evidence. null if it is not known."
    )
    metrics: dict[str, Estimate] = Field(
        description="Of a multilabel model: four metrics, means over labels."
    )
    changes: dict[str, Change] = Field(
        description="Differences from the baseline, with paired intervals; empty for the baseline."
    )
    labels: list[LabelResult] = Field(
        [],
        description="Metrics of each label of a multilabel model, in their order. Empty in lists.",
    )


class EvaluationPicture(Resource):
    """A picture of one version, or of the baseline and another."""

    #: Title of the picture.
    title: str
    #: What it shows.
    caption: str
    #: The versions that it shows.
    versions: list[str]
    specification: dict[str, Any] = Field(description="Vega-Lite specification.")


class Evaluation(Resource):
    """Versions of a model on a data set. Its id is that of the job."""

    #: Id of the job.
    id: str
    #: Name of the model.
    model: str
    #: Name of the data set.
    dataset: str
    versions: list[str] = Field(description="Numbers, or `identity`; the first is the baseline.")
    #: State of the job.
    state: Annotated[str, one_of(JobState)]
    #: How far the job is; null before it starts.
    progress: Progress | None
    #: Why the job has failed; null otherwise.
    error: str | None
    rows: int | None = Field(description="N; null until the job has succeeded.")
    results: list[VersionResult] = Field(description="Empty until the job has succeeded.")
    #: Versions that were fitted on these rows, in sentences.
    warnings: list[str]
    pictures: list[EvaluationPicture] = Field(description="Empty in lists.")
    #: When it was created.
    created_at: Time
    #: When the job has ended; null before.
    finished_at: Time | None


class EvaluationPage(Page[Evaluation]):
    """A page of evaluations, newest first."""
