"""Jobs, and batches, which jobs calibrate."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from recalib.contract.base import Page, Resource, Time, one_of
from recalib.contract.datasets import INPUT

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class Progress(Resource):
    """How far a job is."""

    fraction: float = Field(ge=0, le=1)
    message: str


class Job(Resource):
    """A job and its result."""

    id: str
    kind: str
    state: Annotated[str, one_of(JobState)]
    model: str | None
    progress: Progress | None
    result: dict[str, Any] | None = Field(description="For a fit: `version`, `promoted`, ...")
    error: str | None
    attempts: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state in ("succeeded", "failed", "cancelled")


class JobPage(Page[Job]):
    """A page of jobs, newest first."""


class Batch(Resource):
    """A file that a job calibrates. Its id is that of the job."""

    id: str
    model: str
    version: int | None = Field(
        description="The version that calibrates; null for a model without a champion."
    )
    uncalibrated: bool = Field(
        False, description="Whether the probabilities are those of the classifier, uncalibrated."
    )
    dataset: str | None = Field(description="null for uploaded rows.")
    input: Annotated[str, INPUT]
    format: Annotated[str, one_of(Literal["npz", "parquet"])]
    rows: int = Field(description="Number of rows N.")
    state: Annotated[str, one_of(JobState)]
    progress: Progress | None
    error: str | None
    digest: str | None = Field(
        description="SHA-256 of the result, in hex; null until the job has succeeded."
    )
    size_bytes: int | None = Field(description="Size of the result.")
    created_at: Time
    finished_at: Time | None


class BatchPage(Page[Batch]):
    """A page of batches, newest first."""
