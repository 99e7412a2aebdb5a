"""Whether a server can serve."""

from __future__ import annotations

from recalib.client.errors import MalformedAnswerError, error_of
from recalib.client.operations import Plan, Request, Session
from recalib.client.results import Readiness
from recalib.client.retry import read

__all__ = ["ready"]


def ready(session: Session) -> Plan[Readiness]:
    """Return whether the server can serve, and why not; it is asked once.

    Raises
    ------
    UnreachableError: there is no server.
    ServiceError: something else answers, such as a proxy before it.
    """
    answer = yield Request("GET", "/readyz", seconds=session.timeout)
    if answer.status not in (200, 503):
        raise error_of(answer)
    try:
        return read(answer, Readiness)
    except MalformedAnswerError:
        if answer.status == 503:
            raise error_of(answer) from None
        raise
