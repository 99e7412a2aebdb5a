"""Readiness of a server."""

from __future__ import annotations

from recalib.client.errors import InvalidResponseError, service_error
from recalib.client.operations import Flow, Request, Session
from recalib.client.retry import read
from recalib.contract.monitoring import Ready as Readiness


def ready(session: Session) -> Flow[Readiness]:
    """Return whether the server is ready, and the reason if it is not. There are no retries.

    Raises
    ------
    UnreachableError: no server responds.
    ServiceError: another program responds, such as a proxy.
    """
    response = yield Request("GET", "/readyz", seconds=session.timeout)
    if response.status not in (200, 503):
        raise service_error(response)
    try:
        return read(response, Readiness)
    except InvalidResponseError:
        if response.status == 503:
            raise service_error(response) from None
        raise
