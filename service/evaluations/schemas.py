"""Requests and responses for evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from service.schemas.estimate import Estimate
from service.schemas.field_types import Text, Time, Version
from service.schemas.job import JobState, Progress
from service.times import iso

#: The page has a section for each version; more are hard to compare.
MAX_VERSIONS = 8


class EvaluationCreate(BaseModel):
    """A request to measure versions on a data set."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text = Field(description="Name of a data set of the model.")
    versions: list[Version] = Field(
        min_length=1,
        max_length=MAX_VERSIONS,
        description="Numbers or aliases of versions, or `identity` for the model without a "
        "calibrator. An alias means the version that it points to now.",
    )
    baseline: Version | None = Field(
        None,
        description="The version that the others are compared with; it is measured too. By default "
        "the first.",
    )


class Change(BaseModel):
    """The value of a metric minus that of the baseline, on the same rows."""

    value: float
    low: float = Field(description="Lower end of the 95% interval of the difference.")
    high: float
    verdict: Literal["better", "worse", "unclear", "equal", "none"] = Field(
        description="`unclear`: the interval holds 0. `none`: neither high nor low is good."
    )


class LabelResult(BaseModel):
    """The metrics of one label of a multilabel model."""

    label: str = Field(description="Its name, or its number if the model has no names.")
    metrics: dict[str, Estimate]
    changes: dict[str, Change] = Field(
        description="Differences from the baseline, as those of the version."
    )


class VersionResult(BaseModel):
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


class EvaluationPicture(BaseModel):
    """A picture of one version, or of the baseline and another."""

    title: str
    caption: str
    versions: list[str]
    specification: dict[str, Any] = Field(description="Vega-Lite specification.")


class Evaluation(BaseModel):
    """Versions of a model on a data set. Its id is that of the job."""

    id: str
    model: str
    dataset: str
    versions: list[str] = Field(description="Numbers, or `identity`; the first is the baseline.")
    state: JobState
    progress: Progress | None
    error: str | None
    rows: int | None = Field(description="N; null until the job has succeeded.")
    results: list[VersionResult] = Field(description="Empty until the job has succeeded.")
    warnings: list[str]
    pictures: list[EvaluationPicture] = Field(description="Empty in lists.")
    created_at: Time
    finished_at: Time | None

    @classmethod
    def of(cls, job: registry.Job, content: Mapping[str, Any]) -> Evaluation:
        """Return the wire form of an evaluation job.

        Parameters
        ----------
        content: the file of its result; empty in lists.
        """
        result = job.result or {}
        results = [VersionResult(**item) for item in result.get("results", ())]
        for item, labels in zip(results, content.get("labels", ()), strict=False):
            item.labels = [LabelResult(**label) for label in labels]
        return cls(
            id=job.id,
            model=job.model or "",
            dataset=job.payload["dataset"],
            versions=[str(version) for version in job.payload["versions"]],
            state=job.state,
            progress=Progress(**job.progress) if job.progress else None,
            error=job.error,
            rows=result.get("rows"),
            results=results,
            warnings=result.get("warnings", []),
            pictures=[EvaluationPicture(**picture) for picture in content.get("pictures", ())],
            created_at=iso(job.created_at),
            finished_at=None if job.finished_at is None else iso(job.finished_at),
        )


class EvaluationPage(BaseModel):
    """A page of evaluations, newest first."""

    items: list[Evaluation]
    next_cursor: str | None
