"""The audit trail over gRPC."""

from __future__ import annotations

from service.audit import handlers
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.grpc.messages import page_limit, to_message
from service.grpc.rpc import Context
from service.state import State


class Audit:
    """`recalib.v1.Audit`."""

    def __init__(self, state: State) -> None:
        self._state = state

    def list_audit(self, request: pb.ListAuditRequest, context: Context) -> pb.AuditPage:
        """List audit entries, newest first."""
        limit = page_limit(request.limit)
        filters = (request.actor or None, request.action or None, request.model or None)
        with self._state.registry.reading() as tx:
            page = handlers.list_audit(tx, *filters, limit, request.cursor or None)
        return to_message(pb.AuditPage, page)
