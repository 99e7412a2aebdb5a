"""What the audit trail looks like on the wire."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from recalib import registry
from service.times import iso

__all__ = ["AuditEntry", "AuditPage"]


class AuditEntry(BaseModel):
    """One thing that somebody did, or was refused."""

    id: int
    at: str = Field(description="ISO 8601, UTC.")
    actor: str = Field(
        description="An API key's name, `oidc:` and a token's subject, `cli:` and a user, "
        "`monitor`, or `anonymous` where nobody needs a key."
    )
    action: str = Field(description="The operation, as this description names it, or a like word.")
    model: str | None = Field(description="The model that it was done to.")
    target: str = Field(description="The object: an alias, a data set, a job, a key.")
    detail: str = Field(description="In words, with the reason where one was given.")
    result: Literal["done", "refused"]

    @classmethod
    def of(cls, entry: registry.AuditEntry) -> AuditEntry:
        """Return the wire form of an entry."""
        return cls(
            id=entry.id,
            at=iso(entry.at),
            actor=entry.actor,
            action=entry.action,
            model=entry.model,
            target=entry.target,
            detail=entry.detail,
            result="done" if entry.result == "done" else "refused",
        )


class AuditPage(BaseModel):
    """Some entries, newest first."""

    items: list[AuditEntry]
    next_cursor: str | None
