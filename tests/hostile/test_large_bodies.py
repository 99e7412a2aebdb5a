"""Large bodies of any shape, and a server that answers others meanwhile."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import logging
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from recalib.registry import Registry
from recalib.settings import Settings
from tests.end_to_end.programs import Programs, Server
from tests.fitting.conftest import draw
from tests.hostile.bystander import Bystander
from tests.hostile.clients import Client, peak_growth_mib
from training.main import HANDLERS
from training.worker import Worker

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

_MIB = 2**20
_MAX_JSON = 4 * _MIB
_MODEL = "/v1/models/digits"
_JSON = "Content-Type: application/json"
#: Processor time that the server may use before it answers another client. On a quiet machine it
#: stays below 0.1 s, and the log of this test has the figures. On a busy machine, shared caches and
#: cores make the same work up to four times as long. Without limits it is 5 s.
_MAX_WORK_SECONDS = 1.0
#: Limit of growth of the server's memory: 15 times the body.
_MAX_GROWTH_MIB = 60


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("large-bodies"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def server(programs: Programs) -> Iterator[Server]:
    """A server without keys, with a model and a champion, which a worker of this process fits."""
    with programs.serve("--job-workers", 0, grpc_port=-1) as server:
        server.model()
        server.upload(*draw(200, 4, 1.0))
        job = server.ask_fit(map="identity", promote=True)
        settings = Settings(home=programs.home)
        registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
        assert Worker(registry, HANDLERS, name="test").work_once(threading.Event())
        registry.close()
        server.finished(job)
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log()


def _send(
    server: Server, path: str, body: bytes, *headers: str, method: str = "POST"
) -> tuple[int, bytes]:
    """Send all of a body before the answer is read; return status and body of the answer."""
    fields = ("Host: localhost", f"Content-Length: {len(body)}", *headers)
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *fields, "", ""])
    with contextlib.closing(Client(server)) as client:
        content = client.send(head.encode()).send(body).answer()
    return int(content[9:12]), content.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("method", "path", "limit", "alternative"),
    [
        ("POST", "/v1/models", _MIB, ""),
        ("POST", f"{_MODEL}/calibrators", _MAX_JSON, "gRPC"),
        ("PUT", f"{_MODEL}/aliases/labels", _MIB, ""),
        ("PUT", f"{_MODEL}/monitoring/settings", _MIB, ""),
        ("POST", "/v1/training-runs", _MIB, ""),
        ("POST", f"{_MODEL}/calibrate", _MAX_JSON, "application/x-npy or an Arrow stream"),
        ("POST", "/v2/models/digits/infer", _MAX_JSON, "the binary tensor data extension"),
        ("POST", f"{_MODEL}/labels", _MAX_JSON, "several requests"),
        ("POST", f"{_MODEL}/observations", _MAX_JSON, "several requests"),
    ],
)
def test_json_over_the_limit_is_refused_and_the_error_arrives(
    server: Server, method: str, path: str, limit: int, alternative: str
) -> None:
    status, answer = _send(server, path, b" " * (limit + 1), _JSON, method=method)
    assert status == 413
    text = json.loads(answer).get("error") or json.loads(answer)["errors"][0]["accepted"]
    assert f"at most {limit} bytes" in text
    assert alternative in text
    at_the_limit, _ = _send(server, path, b" " * limit, _JSON, method=method)
    assert at_the_limit in (400, 404, 409, 422)


#: Shapes of JSON that take long to parse or much memory, as large as the limit allows.
_SIZE = _MAX_JSON - 1_000
_TENSOR = b'{"inputs":[{"name":"logits","datatype":"FP32","shape":[%d,1],"data":['


def _repeated(start: bytes, piece: bytes, end: bytes, size: int = _SIZE) -> bytes:
    count = (size - len(start) - len(end)) // len(piece)
    return start + piece * count + end


_SHAPES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "short numbers": ("calibrate", lambda: _repeated(b'{"logits":[[', b"1,", b"1]]}")),
    "short rows": ("calibrate", lambda: _repeated(b'{"logits":[', b"[1],", b"[1]]}")),
    "empty rows": ("calibrate", lambda: _repeated(b'{"logits":[', b"[],", b"[]]}")),
    "one number": ("calibrate", lambda: _repeated(b'{"logits":[[1.', b"7", b"]]}")),
    "one text": ("calibrate", lambda: _repeated(b'{"logits":[["', b"\\u00e9", b'"]]}')),
    "one name": ("calibrate", lambda: _repeated(b'{"logits":[[1]]', b',"logits":[[1]]', b"}")),
    "nested": ("calibrate", lambda: _repeated(b'{"logits":', b"[", b"")),
    "null": ("infer", lambda: _repeated(_TENSOR % (_SIZE // 5), b"null,", b"1]}]}")),
    "tensors": ("infer", lambda: _repeated(b'{"inputs":[', b'{"name":"","shape":[]},', b"{}]}")),
    "parameters": (
        "infer",
        lambda: _repeated(b'{"parameters":{"a":[', b"[],", b'[]]},"inputs":[]}'),
    ),
    "labels": ("labels", lambda: _repeated(b"[", b'{"prediction_id":"","label":1},', b"{}]")),
    "observations": (
        "observations",
        lambda: _repeated(b'{"labels":[1],"times":[1],"logits":[', b"[1],", b"[1]]}"),
    ),
    "parameters of a calibrator": (
        "calibrators",
        lambda: _repeated(b'{"parameters":"', b"A", b'"}'),
    ),
    "options": (
        "calibrators",
        lambda: _repeated(b'{"dataset":"validation","options":{"a":[', b"[],", b"[]]}}"),
    ),
    "unknown fields": (
        "models",
        lambda: _repeated(b'{"name":"a","classes":3', b',"x":1', b"}", _MIB),
    ),
    "classes": ("models", lambda: _repeated(b'{"name":"a","classes":[', b"[],", b"[]]}", _MIB)),
}


@pytest.mark.parametrize("shape", _SHAPES)
def test_others_are_answered_while_json_of_any_shape_is_parsed(server: Server, shape: str) -> None:
    name, make = _SHAPES[shape]
    path = f"/v2/models/digits/{name}" if name == "infer" else f"{_MODEL}/{name}"
    path, body = "/v1/models" if name == "models" else path, make()
    with peak_growth_mib(server) as growth, Bystander(server, "digits", 4) as bystander:
        for _ in range(6):
            status, answer = _send(server, path, body, _JSON)
            assert status in (400, 413, 422)
            assert len(answer) < 1_000
    _check(shape, bystander, growth())


def _check(what: str, bystander: Bystander, growth_mib: float) -> None:
    log.info(
        "%s: livez %s; calibrate %s; peak +%.0f MiB",
        what,
        bystander.livez,
        bystander.calibrate,
        growth_mib,
    )
    assert bystander.livez.longest_work < _MAX_WORK_SECONDS
    assert bystander.calibrate.p99_work < _MAX_WORK_SECONDS
    assert growth_mib < _MAX_GROWTH_MIB


@pytest.mark.parametrize("media_type", ["application/x-npy", "application/json"])
def test_others_are_answered_while_a_large_answer_is_written(
    server: Server, media_type: str
) -> None:
    """A JSON answer is five times as large as the binary request."""
    rows = np.zeros((100_000, 4), np.int8)
    file = io.BytesIO()
    np.save(file, rows)
    accept = f"Accept: {media_type}", "Content-Type: application/x-npy"
    with peak_growth_mib(server) as growth, Bystander(server, "digits", 4) as bystander:
        for _ in range(4):
            assert _send(server, f"{_MODEL}/calibrate?ids=0", file.getvalue(), *accept)[0] == 200
    _check(media_type, bystander, growth())


def test_small_compressed_body_is_not_unpacked_beyond_the_limit(server: Server) -> None:
    body = gzip.compress(_repeated(_TENSOR % 9, b"1,", b"1]}]}", 60 * _MIB))
    with peak_growth_mib(server) as growth, Bystander(server, "digits", 4) as bystander:
        for _ in range(4):
            status, _ = _send(server, "/v2/models/digits/infer", body, "Content-Encoding: gzip")
            assert status == 413
    _check("gzip", bystander, growth())
