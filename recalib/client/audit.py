"""The audit trail."""

from __future__ import annotations

from recalib.client.drivers import Listing
from recalib.client.retry import path, without_none
from recalib.contract.base import Page
from recalib.contract.events import AuditEntry


def list_audit(
    *, actor: str | None = None, action: str | None = None, model: str | None = None
) -> Listing[AuditEntry]:
    """Iterate over the audit trail, newest first; arguments filter it."""
    query = without_none(actor=actor, action=action, model=model)
    return Listing(Page[AuditEntry], path("audit"), query)
