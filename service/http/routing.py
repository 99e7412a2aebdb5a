"""Routers whose routes authorise the caller before they read the body."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from service.http.entry import EXCHANGE

__all__ = ["Router"]


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler, operation = super().get_route_handler(), self.operation_id or ""

        async def authorised(request: Request) -> Response:
            request.scope[EXCHANGE].authorise(operation, request.path_params.get("model"))
            return await handler(request)

        return authorised


class Router(APIRouter):
    """FastAPI's router; the operation id of each route is its key in the permission rules."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=_Route, **options)
