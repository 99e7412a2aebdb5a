"""The entry point of every HTTP request: admission, endpoint, errors, metrics.

A request on a fast route goes to its endpoint, every other request to FastAPI. Only this module
decides it, and the decision depends on method and path alone.
"""

from __future__ import annotations

import asyncio
import traceback

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recalib.errors import LimitedError
from service.exchange import Exchange
from service.failures import log_failure
from service.http.bodies import LimitedBody, limit_body
from service.http.body_timeout import receive_in_time
from service.http.browsers import BrowserChecks
from service.http.fast_routes import FastRoutes, header_map
from service.http.heads import head_refusal
from service.http.problems import error_response, problem_for
from service.http.security_headers import with_security_headers
from service.metrics import record_request
from service.operations import OPERATIONS
from service.request_ids import HEADER
from service.state import State

#: Key of a request's `Exchange` in its ASGI scope.
EXCHANGE = "recalib.exchange"
#: The status counted for a client that closed the connection before the response, as in nginx.
_CLIENT_CLOSED_REQUEST = 499
#: The answer to a request that is still running when the time of a graceful stop ends.
_STOPPED = 503, "Temporarily unavailable", "the server stopped meanwhile; send the request again"


class Entry:
    """The application of all HTTP requests.

    Parameters
    ----------
    app: FastAPI, for requests that match no fast route.
    """

    def __init__(self, state: State, app: ASGIApp) -> None:
        self._state, self._access, self._app = state, state.access, app
        self._browsers = BrowserChecks(state.settings)
        self._fast_routes = FastRoutes(OPERATIONS.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and record its metrics."""
        headers, match = header_map(scope), self._fast_routes.match(scope)
        state, access, path = self._state, self._access, scope["path"]
        client = scope.get("client")
        peer = client[0] if client else ""
        exchange = scope[EXCHANGE] = Exchange(access, headers, peer)
        if scheme := access.proxies.scheme(peer, headers):
            scope["scheme"] = scheme
        status, refused, id_header = 0, "", (HEADER, exchange.request_id.encode())
        limited = receive = receive_in_time(scope, receive, state.settings, state.load_shedding)

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = with_security_headers((id_header, *message.get("headers", ())))
            await send(message)

        try:
            malformed = head_refusal(scope, headers)
            refusal = malformed or self._browsers.refusal(scope["method"], headers)
            if refusal is not None:
                refused = "malformed" if malformed else "forbidden"
                response = problem_for(path, *refusal)
                if malformed:  # what follows may be read differently, too
                    response.headers["Connection"] = "close"
                await response(scope, receive, send_with_headers)
                return
            if not access.is_open_path(path):
                refused = "unauthenticated"  # until the caller is known
                await exchange.admit()
                refused = ""
            if match is None:
                await self._app(scope, receive, send_with_headers)
            else:
                operation, parameters = match
                limited = limit_body(state, operation, scope, receive, exchange)
                exchange.authorise(operation, parameters["model"])
                request = Request(scope, limited)
                response = await operation.endpoint(**parameters, state=state, request=request)
                status = response.status_code
                response.raw_headers = with_security_headers((id_header, *response.raw_headers))
                await response(scope, limited, send)
        except asyncio.CancelledError:  # uvicorn, which has logged how many, at the end of a stop
            if not status:
                await problem_for(path, *_STOPPED)(scope, receive, send_with_headers)
        except Exception as error:
            # They hold the body, and the future of a thread refers to them in a cycle.
            traceback.clear_frames(error.__traceback__)
            if refused and isinstance(error, LimitedError):
                refused = "limited"
            if _is_disconnect(error):
                status = _CLIENT_CLOSED_REQUEST
            elif status:  # the response has started; the server closes the connection
                log_failure(error)
            else:
                await error_response(path, error)(scope, receive, send_with_headers)
        finally:
            exchange.release()
            if isinstance(limited, LimitedBody):
                limited.release()
            # An unmatched path has no template, and its text must not become a metric label.
            route_label = (
                match[0].path if match else getattr(scope.get("route"), "path", "unmatched")
            )
            record_request(scope["method"], refused or route_label, status or 500, exchange.started)


def _is_disconnect(error: Exception) -> bool:
    """Return whether the client closed the connection.

    uvicorn reports a closed connection to the last of its pipelined requests only. For the others
    it goes on writing, and uvloop raises RuntimeError.
    """
    return (
        isinstance(error, ClientDisconnect)
        or isinstance(error.__cause__, ClientDisconnect)
        or (isinstance(error, RuntimeError) and str(error).endswith("the handler is closed"))
    )
