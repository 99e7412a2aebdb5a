"""Requests and responses for evaluations."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from service.schemas.estimate import Estimate
from service.schemas.field_types import Text, Version
from service.schemas.job import JobState, Progress
from service.times import iso

__all__ = [
    "MAX_VERSIONS",
    "Change",
    "Evaluation",
    "EvaluationCreate",
    "EvaluationPage",
    "EvaluationPicture",
    "VersionResult",
]

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
        "calibrator. The others are compared with the first. An alias means the version that it "
        "points to now.",
    )


class Change(BaseModel):
    """The value of a metric minus that of the first version, on the same rows."""

    value: float
    low: float = Field(description="Lower end of the 95% interval of the difference.")
    high: float
    verdict: Literal["better", "worse", "unclear", "equal", "none"] = Field(
        description="`unclear`: the interval holds 0. `none`: neither high nor low is good."
    )


class VersionResult(BaseModel):
    """The metrics of one version on the data set."""

    version: str = Field(description="A number, or `identity`.")
    fitted_rows: int | None = Field(
        description="How many of the rows the version was fitted on: on these rows, its metrics "
        "are not evidence. null if it is not known."
    )
    metrics: dict[str, Estimate]
    changes: dict[str, Change] = Field(
        description="Differences from the first version, with paired intervals; empty for the "
        "first."
    )


class EvaluationPicture(BaseModel):
    """A picture of one version, or of the first and another."""

    title: str
    caption: str
    versions: list[str]
    specification: dict[str, Any] = Field(description="Vega-Lite.")


class Evaluation(BaseModel):
    """Versions of a model on a data set. Its id is that of the job."""

    id: str
    model: str
    dataset: str
    versions: list[str] = Field(description="Numbers, or `identity`; the first is the reference.")
    state: JobState
    progress: Progress | None
    error: str | None
    rows: int | None = Field(description="N; null until the job has succeeded.")
    results: list[VersionResult] = Field(description="Empty until the job has succeeded.")
    warnings: list[str]
    pictures: list[EvaluationPicture] = Field(description="Empty in lists.")
    created_at: str
    finished_at: str | None

    @classmethod
    def of(cls, job: registry.Job, pictures: list[EvaluationPicture]) -> Evaluation:
        """Return the wire form of an evaluation job."""
        result = job.result or {}
        return cls(
            id=job.id,
            model=job.model or "",
            dataset=job.payload["dataset"],
            versions=[str(version) for version in job.payload["versions"]],
            state=job.state,
            progress=Progress(**job.progress) if job.progress else None,
            error=job.error,
            rows=result.get("rows"),
            results=[VersionResult(**item) for item in result.get("results", ())],
            warnings=result.get("warnings", []),
            pictures=pictures,
            created_at=iso(job.created_at),
            finished_at=None if job.finished_at is None else iso(job.finished_at),
        )


class EvaluationPage(BaseModel):
    """Some evaluations, newest first."""

    items: list[Evaluation]
    next_cursor: str | None
