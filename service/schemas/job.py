"""Schema of a job."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from recalib import registry
from service.schemas.field_types import Time
from service.times import iso

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class Progress(BaseModel):
    """How far a job is."""

    fraction: float = Field(ge=0, le=1)
    message: str


class Job(BaseModel):
    """A job and its result."""

    id: str
    kind: str
    state: JobState
    model: str | None
    progress: Progress | None
    result: dict[str, Any] | None = Field(description="For a fit: `version`, `promoted`, ...")
    error: str | None
    attempts: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None

    @classmethod
    def of(cls, job: registry.Job) -> Job:
        """Return the wire form of a job."""
        return cls(
            id=job.id,
            kind=job.kind,
            state=job.state,
            model=job.model,
            progress=Progress(**job.progress) if job.progress else None,
            result=job.result,
            error=job.error,
            attempts=job.attempts,
            created_at=iso(job.created_at),
            started_at=iso(job.started_at) if job.started_at is not None else None,
            finished_at=iso(job.finished_at) if job.finished_at is not None else None,
        )
