"""Headers by which browsers run and load nothing that a response holds.

A response may repeat what callers sent. A page, such as a report, has a policy of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_TYPE_OPTIONS = (b"x-content-type-options", b"nosniff")
SECURITY_HEADERS = (_TYPE_OPTIONS, _POLICY)


def with_security_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response, with a type that is not guessed and a policy."""
    complete = [*headers, _TYPE_OPTIONS]
    if _POLICY[0] not in dict(complete):
        complete.append(_POLICY)
    return complete


class Cors(CORSMiddleware):
    """CORS, whose answers to preflight requests have the headers of all responses."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        response.raw_headers = with_security_headers(response.raw_headers)
        return response
