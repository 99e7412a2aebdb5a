"""Health by gRPC's own protocol, `grpc.health.v1`: for the whole server and for each service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from anyio import to_thread
from grpc_health.v1 import health_pb2 as pb

from recalib.errors import NotFoundError
from service.grpc.rpc import Context
from service.operations import operation
from service.readiness import readiness
from service.state import State

_Status = pb.HealthCheckResponse


class Health:
    """`grpc.health.v1.Health`: the state of `/readyz`; not serving while the server drains.

    All services are in the same state, since all have the same requirements.

    Parameters
    ----------
    services: their names on the wire; the empty name stands for all of them and is added.
    """

    def __init__(self, state: State, services: Iterable[str]) -> None:
        self._state = state
        self._services = {"", *services}
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Report `NOT_SERVING` from now on."""
        self._draining.set()

    @operation("open")
    async def check(self, request: pb.HealthCheckRequest, context: Context) -> Any:
        """Return the state now."""
        if request.service not in self._services:
            raise NotFoundError("service", request.service)
        return _Status(status=await self._status())

    @operation("open")
    async def list(self, request: Any, context: Context) -> Any:
        """Return the state of every service."""
        status = _Status(status=await self._status())
        return pb.HealthListResponse(statuses=dict.fromkeys(sorted(self._services), status))

    @operation("open")
    async def watch(self, request: pb.HealthCheckRequest, context: Context) -> AsyncIterator[Any]:
        """Yield the state whenever it has changed; a service that is none may become one."""
        last = None
        while True:
            # Before the status, which may be older than a drain that starts meanwhile.
            draining = self._draining.is_set()
            is_known = request.service in self._services
            status = await self._status() if is_known else _Status.SERVICE_UNKNOWN
            if status != last:
                yield _Status(status=status)
            last = status
            if draining:
                return
            with contextlib.suppress(TimeoutError):
                wait = self._state.settings.refresh_seconds
                await asyncio.wait_for(self._draining.wait(), wait)

    async def _status(self) -> Any:
        if self._draining.is_set():
            return _Status.NOT_SERVING
        ready = (await to_thread.run_sync(readiness, self._state)).ready
        return _Status.SERVING if ready else _Status.NOT_SERVING
