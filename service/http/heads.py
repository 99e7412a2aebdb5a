"""Requests that proxies and servers may read differently, or that have no reason to be so large."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import Scope

_MAX_HEADERS = 100
_MAX_TARGET_BYTES = 8_192
_VERSIONS = ("1.1", "1.0")


def head_refusal(scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[int, str, str] | None:
    """Return status, title and detail of the refusal of a request; None: it is accepted."""
    path = scope.get("raw_path", b"")
    if len(path) + len(scope["query_string"]) >= _MAX_TARGET_BYTES:
        return 414, "URI too long", f"URL: accepted: {_MAX_TARGET_BYTES} bytes"
    if len(scope["headers"]) > _MAX_HEADERS:
        return 431, "Request header fields too large", f"headers: accepted: {_MAX_HEADERS}"
    detail = _ambiguity(scope, path, headers)
    return None if detail is None else (400, "Bad request", detail)


def _ambiguity(scope: Scope, path: bytes, headers: Mapping[bytes, bytes]) -> str | None:
    version = scope["http_version"]
    if version not in _VERSIONS:
        return "HTTP version: accepted: 1.1 or 1.0"
    is_unique = len(headers) == len(scope["headers"])
    hosts = is_unique or [name for name, _ in scope["headers"]].count(b"host") <= 1
    if not hosts or (b"host" not in headers and version == "1.1"):
        return "Host: accepted: exactly one"
    codings = headers.get(b"transfer-encoding")
    if codings is not None and (codings.lower() != b"chunked" or version != "1.1"):
        return "Transfer-Encoding: accepted: chunked"
    if b"%" in path and b"%2f" in path.lower():
        return "path: an encoded slash (%2F) is not accepted"
    return None
