"""What `service.http.limited_protocol` needs from uvicorn and httptools."""

from __future__ import annotations

import inspect

import httptools
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.http.limited_protocol import LimitedProtocol

_CALLBACKS = (
    "connection_made",
    "connection_lost",
    "data_received",
    "on_headers_complete",
    "on_body",
    "send_400_response",
)


@pytest.mark.parametrize("name", _CALLBACKS)
def test_uvicorn_has_the_callbacks_that_are_extended(name: str) -> None:
    """A newer uvicorn that renames one would bypass its limit."""
    base = inspect.signature(getattr(HttpToolsProtocol, name))
    assert list(inspect.signature(getattr(LimitedProtocol, name)).parameters) == list(
        base.parameters
    )
    assert name in vars(HttpToolsProtocol)


def test_uvicorn_has_the_attributes_that_are_read() -> None:
    parameters = list(inspect.signature(HttpToolsProtocol).parameters)
    assert parameters == ["config", "server_state", "app_state", "_loop"]
    source = inspect.getsource(HttpToolsProtocol)
    for name in ("cycle", "headers", "pipeline", "url"):
        assert f"self.{name}" in source, name
    source = inspect.getsource(RequestResponseCycle)
    for name in ("more_body", "response_complete", "response_started"):
        assert f"self.{name}" in source, name


def test_parser_rejects_a_request_whose_callback_raises() -> None:
    class Protocol:
        def on_headers_complete(self) -> None:
            raise ValueError

    parser = httptools.HttpRequestParser(Protocol())
    with pytest.raises(httptools.HttpParserError):
        parser.feed_data(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
