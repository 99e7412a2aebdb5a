"""The audit trail over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from recalib.contract.events import AuditPage
from service.access.authenticator import current_principal
from service.http.parameters import Cursor, Limit
from service.http.routing import Router
from service.pagination import decode_number, page_of
from service.schemas import Text
from service.state import StateDependency

router = Router(prefix="/v1/audit", tags=["operations"])

_Exactly = Annotated[Text | None, Query(max_length=500)]


@router.operation("GET", "", "admin", finds_model=True)
def list_audit(
    state: StateDependency,
    actor: _Exactly = None,
    action: _Exactly = None,
    model: _Exactly = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> AuditPage:
    """List changes with actor, object and time, newest first; needs the scope `admin`."""
    current_principal().check_model(model)
    after = decode_number(cursor)
    with state.registry.reading() as tx:
        entries = tx.audit.page(after, limit + 1, actor=actor, action=action, model=model)
    return page_of(AuditPage, entries, limit, lambda entry: str(entry.id))
