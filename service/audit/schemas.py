"""Responses for the audit trail."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from recalib import registry
from service.schemas.field_types import Time
from service.times import iso


class AuditEntry(BaseModel):
    """An operation that was performed or refused."""

    id: int
    at: Time
    actor: str = Field(
        description="An API key's name, `oidc:` and a token's subject, `cli:` and a user, "
        "`monitor`, or `anonymous` if no key is required."
    )
    action: str = Field(description="The operation id, or a similar name.")
    model: str | None = Field(description="The model concerned.")
    target: str = Field(description="The object: an alias, a data set, a job, a key.")
    detail: str = Field(description="Details in words, with the reason if there is one.")
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
    """A page of entries, newest first."""

    items: list[AuditEntry]
    next_cursor: str | None
