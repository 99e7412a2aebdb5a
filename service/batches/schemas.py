"""Requests and responses for batches."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from recalib import registry
from recalib.files import Input
from recalib.files.probabilities import ProbabilityFormat
from service.schemas.field_types import VERSION_DESCRIPTION, Text, Time, Version
from service.schemas.job import JobState, Progress
from service.times import iso


class BatchCreate(BaseModel):
    """A request to calibrate the rows of a data set."""

    model_config = ConfigDict(extra="forbid")

    dataset: Text = Field(description="Name of a data set of the model.")
    version: Version = Field("champion", description=VERSION_DESCRIPTION)
    format: ProbabilityFormat = Field("parquet", description="Format of the result.")


class Batch(BaseModel):
    """A file that a job calibrates. Its id is that of the job."""

    id: str
    model: str
    version: int = Field(description="The version that calibrates.")
    dataset: str | None = Field(description="null for uploaded rows.")
    input: Input
    format: ProbabilityFormat
    rows: int = Field(description="Number of rows N.")
    state: JobState
    progress: Progress | None
    error: str | None
    digest: str | None = Field(
        description="SHA-256 of the result, in hex; null until the job has succeeded."
    )
    size_bytes: int | None = Field(description="Size of the result.")
    created_at: Time
    finished_at: Time | None

    @classmethod
    def of(cls, job: registry.Job) -> Batch:
        """Return the wire form of a batch job."""
        payload, result = job.payload, job.result or {}
        file: dict[str, Any] = next(iter(result.get("files", {}).values()), {})
        return cls(
            id=job.id,
            model=job.model or "",
            version=payload["version"],
            dataset=payload["dataset"],
            input=payload["input"],
            format=payload["format"],
            rows=payload["rows"],
            state=job.state,
            progress=Progress(**job.progress) if job.progress else None,
            error=job.error,
            digest=file.get("digest"),
            size_bytes=file.get("bytes"),
            created_at=iso(job.created_at),
            finished_at=None if job.finished_at is None else iso(job.finished_at),
        )


class BatchPage(BaseModel):
    """A page of batches, newest first."""

    items: list[Batch]
    next_cursor: str | None
