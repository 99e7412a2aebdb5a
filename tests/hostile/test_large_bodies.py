"""Large bodies of any shape, and a server that answers others meanwhile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.end_to_end.programs import Programs, Server
from tests.hostile.clients import Client

_MIB = 2**20
_MODEL = "/v1/models/digits"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("large-bodies"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def server(programs: Programs) -> Iterator[Server]:
    """A server without keys, with a model."""
    with programs.serve("--job-workers", 0, grpc_port=-1) as server:
        server.model()
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def _send(
    server: Server, path: str, body: bytes, *headers: str, method: str = "POST"
) -> tuple[int, bytes]:
    """Send all of a body before the answer is read; return status and body of the answer."""
    fields = ("Host: localhost", "Connection: close", f"Content-Length: {len(body)}", *headers)
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""])
    with contextlib.closing(Client(server)) as client:
        status, _, answer = client.send(head.encode()).send(body).response()
    return status, answer


@pytest.mark.parametrize(
    ("method", "path", "limit", "alternative"),
    [
        ("POST", "/v1/models", _MIB, ""),
        ("POST", f"{_MODEL}/calibrators", _MIB, ""),
        ("PUT", f"{_MODEL}/aliases/labels", _MIB, ""),
        ("PUT", f"{_MODEL}/monitoring/settings", _MIB, ""),
        ("POST", "/v1/training-runs", _MIB, ""),
        ("POST", f"{_MODEL}/calibrate", 12 * _MIB, "application/x-npy or an Arrow stream"),
        ("POST", "/v2/models/digits/infer", 12 * _MIB, "the binary tensor data extension"),
        ("POST", f"{_MODEL}/labels", 12 * _MIB, "several requests"),
        ("POST", f"{_MODEL}/observations", 12 * _MIB, "several requests"),
    ],
)
def test_json_over_the_limit_is_refused_and_the_error_arrives(
    server: Server, method: str, path: str, limit: int, alternative: str
) -> None:
    media_type = "Content-Type: application/json"
    status, answer = _send(server, path, b" " * (limit + 1), media_type, method=method)
    assert status == 413
    text = json.loads(answer).get("error") or json.loads(answer)["errors"][0]["accepted"]
    assert f"at most {limit} bytes" in text
    assert alternative in text
    at_the_limit, _ = _send(server, path, b" " * limit, media_type, method=method)
    assert at_the_limit in (400, 404, 409, 422)
