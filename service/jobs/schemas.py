"""Responses for lists of jobs."""

from __future__ import annotations

from pydantic import BaseModel

from service.schemas.job import Job


class JobPage(BaseModel):
    """A page of jobs, newest first."""

    items: list[Job]
    next_cursor: str | None
