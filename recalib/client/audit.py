"""Who did what."""

from __future__ import annotations

from recalib.client.drivers import Listing
from recalib.client.results import AuditEntry, Page
from recalib.client.retry import path

__all__ = ["list_audit"]


def list_audit(
    *, actor: str | None = None, action: str | None = None, model: str | None = None
) -> Listing[AuditEntry]:
    """Iterate over who did what, newest first: all, or what matches each that is given."""
    query = {"actor": actor, "action": action, "model": model}
    given = {name: value for name, value in query.items() if value is not None}
    return Listing(Page[AuditEntry], path("audit"), given)
