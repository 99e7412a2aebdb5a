"""Whether a server can serve."""

from __future__ import annotations

from recalib.client.asking import read
from recalib.client.errors import MalformedAnswerError
from recalib.client.plans import Plan, Request, Session
from recalib.client.results import Readiness

__all__ = ["ready"]


def ready(session: Session) -> Plan[Readiness]:
    """Return whether the server can serve, and why not; it is asked once.

    Raises
    ------
    UnreachableError: there is no server.
    """
    answer = yield Request("GET", "/readyz", seconds=session.timeout)
    if answer.status not in (200, 503):
        raise MalformedAnswerError(answer, f"has status {answer.status}")
    return read(answer, Readiness)
