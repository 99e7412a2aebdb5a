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
    #: For a fit: `version`, `promoted`, ...
    result: dict[str, Any] | None
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
    #: The version that calibrates; null for a model without a champion.
    version: int | None
    #: Whether the probabilities are those of the classifier, uncalibrated.
    uncalibrated: bool = False
    #: null for uploaded rows.
    dataset: str | None
    #: What the rows are.
    input: Annotated[str, INPUT]
    #: Format of the result.
    format: Annotated[str, one_of(Literal["npz", "parquet"])]
    #: Whether the result has prediction sets.
    sets: bool = False
    #: Whether the result says which rows are accepted.
    accepted: bool = False
    #: Number of rows N.
    rows: int
    #: State of the job.
    state: Annotated[str, one_of(JobState)]
    #: How far the job is; null before it starts.
    progress: Progress | None
    #: Why the job has failed; null otherwise.
    error: str | None
    #: SHA-256 of the result, in hex; null until the job has succeeded.
    digest: str | None
    #: Size of the result.
    size_bytes: int | None
    #: When it was created.
    created_at: Time
    #: When the job has ended; null before.
    finished_at: Time | None


class BatchPage(Page[Batch]):
    """A page of batches, newest first."""
