"""Operations on the audit trail, independent of the transport."""

from __future__ import annotations

from recalib.contract.events import AuditEntry, AuditPage
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.pagination import decode_number, next_cursor


def list_audit(
    tx: Transaction,
    actor: str | None,
    action: str | None,
    model: str | None,
    limit: int,
    cursor: str | None,
) -> AuditPage:
    """Return a page of audit entries, newest first, filtered by actor, action and model.

    A principal that is restricted to some models must name one of them.
    """
    current_principal().check_model(model)
    after = decode_number(cursor)
    entries = tx.audit.page(after, limit + 1, actor=actor, action=action, model=model)
    following = next_cursor(entries, limit, lambda entry: str(entry.id))
    return AuditPage(
        items=[AuditEntry.model_validate(entry) for entry in entries[:limit]], next_cursor=following
    )
