"""Jobs, and batches, which jobs calibrate."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from recalib.contract.base import Page, Resource, Time, one_of
from recalib.contract.datasets import INPUT

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class Progress(Resource):
    """How far a job is."""

    #: Share of the work that is done.
    fraction: float = Field(ge=0, le=1)
    #: What the job does.
    message: str


class Job(Resource):
    """A job and its result."""

    #: Id of the job.
    id: str
    #: Kind of the job, such as `fit`.
    kind: str
    #: State of the job.
    state: Annotated[str, one_of(JobState)]
    #: Name of the model; null if it concerns none.
    model: str | None
    #: How far it is; null before it starts.
    progress: Progress | None
    result: dict[str, Any] | None = Field(description="For a fit: `version`, `promoted`, ...")
    #: Why it has failed; null otherwise.
    error: str | None
    #: Number of attempts that have begun.
    attempts: int
    #: When it was created.
    created_at: Time
    #: When the last attempt began; null before.
    started_at: Time | None
    #: When it has ended; null before.
    finished_at: Time | None

    @property
    def finished(self) -> bool:
        """Whether the state is final."""
        return self.state in ("succeeded", "failed", "cancelled")


class JobPage(Page[Job]):
    """A page of jobs, newest first."""


class Batch(Resource):
    """A file that a job calibrates. Its id is that of the job."""

    #: Id of the job.
    id: str
    #: Name of the model.
    model: str
    version: int | None = Field(
        description="The version that calibrates; null for a model without a champion."
    )
    uncalibrated: bool = Field(
        False, description="Whether the probabilities are those of the classifier, uncalibrated."
    )
    dataset: str | None = Field(description="null for uploaded rows.")
    #: What the rows are.
    input: Annotated[str, INPUT]
    #: Format of the result.
    format: Annotated[str, one_of(Literal["npz", "parquet"])]
    sets: bool = Field(False, description="Whether the result has prediction sets.")
    rows: int = Field(description="Number of rows N.")
    #: State of the job.
    state: Annotated[str, one_of(JobState)]
    #: How far the job is; null before it starts.
    progress: Progress | None
    #: Why the job has failed; null otherwise.
    error: str | None
    digest: str | None = Field(
        description="SHA-256 of the result, in hex; null until the job has succeeded."
    )
    size_bytes: int | None = Field(description="Size of the result.")
    #: When it was created.
    created_at: Time
    #: When the job has ended; null before.
    finished_at: Time | None


class BatchPage(Page[Batch]):
    """A page of batches, newest first."""
