"""Reading the audit trail; no transport here."""

from __future__ import annotations

import re

from recalib.errors import InputError
from recalib.registry import Transaction
from service.access.authenticator import current_principal
from service.audit.schemas import AuditEntry, AuditPage
from service.pagination import decode_cursor, next_cursor

__all__ = ["list_audit"]


def list_audit(
    tx: Transaction,
    actor: str | None,
    action: str | None,
    model: str | None,
    limit: int,
    cursor: str | None,
) -> AuditPage:
    """Return a page of who did what, newest first: all, or what matches each that is given.

    Who is for some models alone may ask about one of these.
    """
    current_principal().check_model(model)
    position = decode_cursor(cursor)
    if position is not None and not re.fullmatch(r"[0-9]{1,18}", position):
        raise InputError("cursor", found="something else", accepted="next_cursor of a page")
    after = None if position is None else int(position)
    found = tx.audit.page(after, limit + 1, actor=actor, action=action, model=model)
    more = next_cursor(found, limit, lambda entry: str(entry.id))
    return AuditPage(items=[AuditEntry.of(one) for one in found[:limit]], next_cursor=more)
