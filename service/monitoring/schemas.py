"""Requests for monitoring."""

from __future__ import annotations

from pydantic import BaseModel, Field

from service.schemas import MAX_VERSION, Text


class CandidateDrop(BaseModel):
    """A request to drop a candidate."""

    version: int = Field(ge=1, le=MAX_VERSION)
    reason: Text = Field("", max_length=500, description="Kept in the audit trail.")
