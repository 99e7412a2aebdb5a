"""Schema of the answer to a deletion."""

from __future__ import annotations

from pydantic import BaseModel, Field


class Deletion(BaseModel):
    """A deletion: the resource is hidden at once, and its content is erased later."""

    deleted_at: str = Field(description="ISO 8601, UTC.")
    erased_after: str = Field(description="Time from which its content is erased.")
