"""One request or RPC from arrival to answer, on any transport."""

from __future__ import annotations

import time
from collections.abc import Mapping

from recalib.core.access import ANONYMOUS, Principal
from recalib.observability import telemetry
from recalib.observability.logs import set_log_fields
from service.access.authenticator import Authenticator, set_principal
from service.operations import Operation
from service.request_ids import request_id_of, traceparent_of


class Exchange:
    """Request id, log fields, trace span, caller and limits of one request.

    The transport creates it on arrival, calls `admit` before it reads the body, `authorise` before
    the work, and `release` at the end. Where the body names the model, it calls `check_scope`
    before it reads the body too.

    Parameters
    ----------
    headers: by lower-case name; gRPC's metadata.
    peer: IP address of the connection, empty if unknown; it may be a proxy's.
    """

    __slots__ = ("_access", "_authorization", "_principal", "address", "request_id", "started")

    def __init__(self, access: Authenticator, headers: Mapping[bytes, bytes], peer: str) -> None:
        #: By `time.perf_counter`.
        self.started = time.perf_counter()
        self.request_id = request_id_of(headers)
        self._access = access
        #: The client's IP address, empty if unknown.
        self.address = access.proxies.client(peer, headers)
        self._authorization = headers.get(b"authorization", b"").decode("latin-1")
        self._principal: Principal | None = None
        # Both apply until the task of the request ends.
        set_log_fields(request_id=self.request_id)
        telemetry.start_request_span(traceparent_of(headers))

    async def admit(self) -> None:
        """Authenticate the caller and take one request from its limits.

        Raises
        ------
        UnauthorizedError, UnavailableError: as `Authenticator.principal`.
        LimitedError: the caller exceeds a limit, or its address sent too many wrong keys.
        """
        self.admit_as(await self._access.authenticate(self._authorization, self.address))

    def admit_as(self, principal: Principal) -> None:
        """Take one request from the limits of an authenticated caller, or raise `LimitedError`."""
        self._access.limiter.enter(principal)
        self._principal = principal
        set_principal(principal)

    def check_scope(self, operation: Operation) -> None:
        """Raise `ForbiddenError` if the caller may do `operation` to no model."""
        self._access.check_scope(self._principal or ANONYMOUS, operation)

    def authorise(self, operation: Operation, model: str | None) -> None:
        """Raise `ForbiddenError` if the caller may not do `operation` to `model`."""
        self._access.authorise(self._principal or ANONYMOUS, operation, model)

    def reauthenticate(self) -> None:
        """Raise `UnauthorizedError` if the caller's key has expired or was revoked meanwhile."""
        if self._principal is not None:
            self._access.principal(self._authorization)

    @property
    def body_bytes(self) -> int | None:
        """The largest body that the caller's key allows; None: the key sets no limit."""
        limits = None if self._principal is None else self._principal.limits
        return None if limits is None else limits.body_bytes

    @property
    def caller(self) -> str:
        """Name of the caller's key or token; without one, the client's IP address."""
        principal = self._principal or ANONYMOUS
        return self.address if principal is ANONYMOUS else principal.name

    def check_body(self, size: int) -> None:
        """Raise `TooLargeError` if the caller's key does not allow a body of `size` bytes."""
        self._access.limiter.check_body(self._principal, size)

    def release(self) -> None:
        """End the request: it no longer counts as concurrent."""
        if self._principal is not None:
            self._access.limiter.leave(self._principal)
