"""Routers whose routes authorise the caller before they read the body, and limit its members."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from recalib.errors import TooLargeError
from service.http.bodies import LimitedBody, limit_body
from service.http.entry import EXCHANGE
from service.operations import DOCUMENT, OPERATIONS, BodyLimit, Operation, RequiredScope

F = TypeVar("F", bound=Callable[..., Any])


#: Members of all objects of a JSON body. pydantic reports each unknown one, which takes 10 µs; a
#: body of 1 MiB could have 100,000.
_MAX_MEMBERS = 1_000
#: The least text of so many members: `"":0,`.
_MAX_UNCHECKED_BYTES = 5 * _MAX_MEMBERS
#: Values of all arrays and objects of a larger body, which may have long texts instead: values take
#: many times their length in memory.
_MAX_VALUES, _MANY_VALUES_BYTES = 10_000, 2**20
_member = re.compile(rb'"\s*:')


class _Route(APIRoute):
    @property
    def operation(self) -> Operation:
        """The declaration of the route's operation."""
        return OPERATIONS[self.operation_id or ""]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, exchange = scope["app"].state.recalib, scope[EXCHANGE]
        limited = limit_body(state, self.operation, scope, receive, exchange)
        try:
            await super().handle(scope, limited, send)
        finally:
            if isinstance(limited, LimitedBody):
                limited.release()

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler, operation = super().get_route_handler(), self.operation
        has_schema = self.body_field is not None

        async def authorised(request: Request) -> Response:
            request.scope[EXCHANGE].authorise(operation, request.path_params.get("model"))
            if has_schema:
                _check_members(await request.body())
            return await handler(request)

        return authorised


def _check_members(body: bytes) -> None:
    if len(body) <= _MAX_UNCHECKED_BYTES:
        return
    if any(itertools.islice(_member.finditer(body), _MAX_MEMBERS, None)):
        found, accepted = f"over {_MAX_MEMBERS} members of objects", f"at most {_MAX_MEMBERS}"
        raise TooLargeError("body", found=found, accepted=accepted)
    if len(body) > _MANY_VALUES_BYTES and body.count(b",") > _MAX_VALUES:
        found = f"over {_MAX_VALUES} values in {len(body)} bytes"
        accepted = f"at most {_MAX_VALUES}, or {_MANY_VALUES_BYTES} bytes"
        raise TooLargeError("body", found=found, accepted=accepted)


class Router(APIRouter):
    """FastAPI's router, whose routes are declared with their operations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=_Route, **options)

    def operation(
        self,
        method: str,
        path: str,
        scope: RequiredScope,
        *,
        mutates: bool | None = None,
        finds_model: bool = False,
        is_reserved: bool = False,
        limit: BodyLimit = DOCUMENT,
        fast: Mapping[str, str] | None = None,
        **route: Any,
    ) -> Callable[[F], F]:
        """Declare the operation of the decorated endpoint, which has its name, and add its route.

        Parameters
        ----------
        path: after the prefix of the router.
        mutates: None: with every method but GET.
        scope, finds_model, is_reserved, limit, fast: see `Operation`.
        route: further arguments of FastAPI's `add_api_route`.
        """

        def declare(endpoint: F) -> F:
            name = endpoint.__name__
            OPERATIONS[name] = Operation(
                endpoint,
                scope,
                method != "GET" if mutates is None else mutates,
                finds_model,
                is_reserved,
                limit,
                self.prefix + path,
                fast,
            )
            self.add_api_route(path, endpoint, methods=[method], operation_id=name, **route)
            return endpoint

        return declare
