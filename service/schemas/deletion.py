"""Schema of the answer to a deletion."""

from __future__ import annotations

from pydantic import BaseModel, Field

from service.schemas.field_types import Time


class Deletion(BaseModel):
    """A deletion: the resource is hidden at once, and its content is erased later."""

    deleted_at: Time
    erased_after: Time = Field(description="Time from which its content is erased.")
