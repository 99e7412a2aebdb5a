"""Headers by which browsers run and load nothing that a response holds.

A response may repeat what callers sent. A page, such as a report, has a policy of its own.
"""

from __future__ import annotations

from starlette.types import Message, Send

_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_TYPE_OPTIONS = (b"x-content-type-options", b"nosniff")
SECURITY_HEADERS = (_TYPE_OPTIONS, _POLICY)


def with_security_headers(send: Send) -> Send:
    """Return `send`, with a type that is not guessed and a policy in the head of the response."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ()), _TYPE_OPTIONS]
            if not any(name == _POLICY[0] for name, _ in headers):
                headers.append(_POLICY)
            message["headers"] = headers
        await send(message)

    return send_with_headers
