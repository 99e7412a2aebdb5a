"""Operations: the one declaration of the name, the scope and the limits of each.

`Router.operation` declares the operation of a REST route, which is also that of the RPC of the same
name; `operation` declares an RPC without a route. Permissions, audit, load shedding, limits of
bodies, fast routes, the OpenAPI document and gRPC read `OPERATIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

#: Largest JSON or message of most operations. Parsing keeps the interpreter lock, so every other
#: request waits for it.
MAX_DOCUMENT_BYTES = 2**20

#: What a key needs: a scope; nothing ("any"), also no key with the setting `public_docs` ("docs");
#: or no key is needed ("open").
RequiredScope = Literal["predict", "label", "fit", "admin", "any", "docs", "open"]


def is_json(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a body is JSON by its headers; without a content type it is."""
    media_type = headers.get(b"content-type", b"").strip().lower()
    return media_type.startswith(b"application/json") or media_type == b""


class BodyLimit(NamedTuple):
    """The largest body of an operation."""

    #: What to send instead of larger JSON. Empty: JSON has at most `MAX_DOCUMENT_BYTES`.
    alternative: str = ""
    #: The setting that limits other bodies; None: they are limited as JSON is.
    other: Literal["max_body_bytes", "max_upload_bytes"] | None = None
    is_json: Callable[[Mapping[bytes, bytes]], bool] = is_json


DOCUMENT = BodyLimit()
#: Written to disk as it arrives.
UPLOAD = BodyLimit(other="max_upload_bytes", is_json=lambda _: False)
#: Of an RPC, which gRPC itself limits.
BATCH = BodyLimit(other="max_body_bytes")


@dataclass(frozen=True)
class Operation:
    """What a route or an RPC does, and who may do it."""

    #: The endpoint of the route, or the method of an RPC without a route.
    endpoint: Callable[..., Any]
    scope: RequiredScope
    #: Whether it changes something; refused attempts are written to the audit trail.
    mutates: bool = False
    #: Whether its handler finds the model, and checks that the caller's key is for it.
    finds_model: bool = False
    #: Whether it is answered when other requests are refused because of load.
    is_reserved: bool = False
    limit: BodyLimit = DOCUMENT
    #: Of the route of REST; empty for an RPC without a route.
    path: str = ""
    #: Regular expressions of path parameters, if the route bypasses FastAPI's routing.
    fast: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        """The name in REST and Python: that of the endpoint."""
        return self.endpoint.__name__

    @property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression of the path; a parameter is text without a slash, unless `fast`."""
        patterns = self.fast or {}
        return re.compile(
            re.sub(
                r"\{(\w+)\}",
                lambda match: f"(?P<{match[1]}>{patterns.get(match[1], '[^/]+')})",
                self.path,
            )
        )


#: Those of all modules that are imported, by name; gRPC's are imported only where it is enabled.
OPERATIONS: dict[str, Operation] = {}


def operation(scope: RequiredScope, **facts: Any) -> Callable[[F], F]:
    """Declare the operation of the decorated method of an RPC without a route.

    Parameters
    ----------
    facts: further fields of `Operation`.
    """

    def declare(method: F) -> F:
        OPERATIONS[method.__name__] = Operation(method, scope, **facts)
        return method

    return declare
