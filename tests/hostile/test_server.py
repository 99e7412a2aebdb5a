"""Hostile requests to a real server, which answers other requests meanwhile."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import httpx2
import pytest

from recalib.files import MEDIA_TYPES
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.programs import PATIENCE_SECONDS, Programs, Server
from tests.fitting.conftest import draw
from tests.hostile.bombs import BOMBS
from tests.service.conftest import NPY

pytestmark = pytest.mark.slow

#: Limits on the growth of the server's peak memory: 7 MiB by all uploads, which the child process
#: reads, and 291 MiB by a calibrate request of 16 MiB of short numbers, which the server decodes.
_MAX_UPLOAD_MIB = 16
_MAX_REQUEST_MIB = 400
_TYPES = {format: kind for kind, format in reversed(MEDIA_TYPES.items())}
_ROW = {"logits": [[1.0, 2.0, 3.0, 4.0]]}
_CALIBRATE = "/v1/models/digits/calibrate"
#: Text that would colour a terminal, forge a log line, or end a header.
_EVIL = "\x1b[31mred\r\n2026-01-01 00:00:00 ERROR forged: yes\u202e\x9b"
#: Invalid values in place of a name.
_PATHS = (
    "../../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e", "%252e%252e%252f",
    "a%00b", "a%0d%0aX-Evil:%201", "%1b%5b31m", "a/../../b", "..\\..\\b", "%5c..%5c",
    "\uff44igits".encode().hex("%").join(("%", "")), "d%C4%B1gits", "%ff%fe", "x" * 5000, ".",
    "..", "%20digits", "digits%20", "digits%00", "-", "~root", "$(id)", "%7B%7B7*7%7D%7D", "con:",
)  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """The programs of one server, shared by the module."""
    programs = Programs(tmp_path_factory.mktemp("hostile"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def server(programs: Programs) -> Iterator[Server]:
    """A server with a champion, whose class names must be escaped when printed."""
    with programs.serve(access_log="true") as server:
        labels = ["<script>alert(1)</script>", "'; drop table models; --", "{{7*7}}", "${HOME}"]
        server.ask("POST", "/v1/models", json={"name": "digits", "classes": labels})
        server.upload(*draw(300, 4, 2.0))
        server.finished(server.ask_fit(promote=True))
        yield server


class _Bystander:
    """A client that sends small requests in a loop and counts the answers."""

    def __init__(self, url: str) -> None:
        self.answered = 0
        self.wrong: list[object] = []
        self._url = url
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> _Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _ask(self) -> None:
        with httpx2.Client(base_url=self._url, timeout=PATIENCE_SECONDS) as client:
            while not self._stopped.is_set():
                try:
                    answer = client.post(_CALIBRATE, json=_ROW)
                except httpx2.HTTPError as error:
                    self.wrong.append(error)
                    return
                if answer.status_code != 200:
                    self.wrong.append(answer.text)
                self.answered += 1
                self._stopped.wait(0.01)


def _requests() -> Iterator[tuple[str, str, str, bytes, dict[str, str]]]:
    """Return every bomb as an upload or a request: name, method, path, body, headers."""
    for name, (parser, make) in BOMBS.items():
        if name == "calibrate: npy of true rows":  # which is one row, and is answered
            continue
        if parser in _TYPES:
            path = f"/v1/models/digits/datasets/{re.sub('[^a-z0-9]+', '-', name)}"
            yield name, "PUT", path, make(), {"Content-Type": _TYPES[parser]}
        elif parser == "calibrate npy":
            yield name, "POST", _CALIBRATE, make(), NPY
        elif parser == "calibrate json":
            yield name, "POST", _CALIBRATE, make(), {"Content-Type": "application/json"}
        elif parser == "v2":
            yield name, "POST", "/v2/models/digits/infer", make().partition(b"\n")[2], {}
        elif parser == "v2 gzip":
            encoded = {"Content-Encoding": "gzip"}
            yield name, "POST", "/v2/models/digits/infer", make(), encoded
        elif parser == "labels":
            labels = {"Content-Type": "application/json"}
            yield name, "POST", "/v1/models/digits/labels", make(), labels
    deep = b'{"data": {"options": ' + b'{"a": ' * 50_000
    yield "recipe: deep", "POST", "/v1/training-runs", deep, {"Content-Type": "application/json"}


def test_bombs_do_not_stop_other_requests(server: Server) -> None:
    """Each gets the right status, and another client is answered meanwhile."""
    before = _peak_mib(server.pid)  # a peak stays, so the uploads must be the first requests
    with _Bystander(server.url) as bystander:
        for name, verb, path, body, headers in _requests():
            answered_before = bystander.answered
            answer = server.client.request(verb, path, content=body, headers=headers)
            _check_refusal(name, answer, (400, 413, 415, 422))
            while bystander.answered == answered_before and not bystander.wrong:
                threading.Event().wait(0.01)
            assert not bystander.wrong, name
            max_mib = _MAX_UPLOAD_MIB if verb == "PUT" else _MAX_REQUEST_MIB
            assert _peak_mib(server.pid) - before < max_mib, name
    assert server.process.poll() is None
    datasets = server.ask("GET", "/v1/models/digits/datasets")["items"]
    assert [item["name"] for item in datasets] == ["validation"]


@pytest.mark.parametrize("verb", ["GET", "PUT", "POST", "DELETE"])
def test_paths_as_names_are_rejected(server: Server, verb: str) -> None:
    """Paths in any encoding are no names, and no text is returned as a header."""
    places = (
        "/v1/models/{}", "/v1/models/digits/datasets/{}", "/v1/models/digits/aliases/{}",
        "/v1/models/{}/calibrate", "/v1/models/digits/calibrators/{}", "/v1/jobs/{}",
        "/v2/models/{}/infer", "/{}",
    )  # fmt: skip
    for place in places:
        for name in _PATHS:
            head, body = _raw(server, f"{verb} {place.format(name)} HTTP/1.1", b"{}")
            status = int(head.split()[1])
            assert 400 <= status < 500, (verb, place, name, head, body)
            assert "x-evil" not in head.lower()
            _check_text(name, body)


def test_hostile_names_are_rejected_and_escaped(server: Server) -> None:
    """Invalid names, keys and cursors are rejected with the field, and shown escaped."""
    ask = server.client.request
    for name in (
        _EVIL,
        "..",
        "../x",
        "a/b",
        "a\0b",
        "\uff44igits",
        "d\u0131gits",
        "x" * 200,
        "",
        " a",
    ):
        created = ask("POST", "/v1/models", json={"name": name, "classes": 2})
        _check_refusal(name, created, (422,))
        if name in (_EVIL, "a\0b"):
            labelled = ask("POST", "/v1/models", json={"name": "z", "classes": [name, "other"]})
            _check_refusal(name, labelled, (422,))
        listed = ask("GET", "/v1/models", params={"cursor": name})
        _check_refusal(name, listed, (422,))
        calibrated = ask("POST", _CALIBRATE, json=_ROW, params={"calibrator": name})
        _check_refusal(name, calibrated, (404, 422))
        fit = {"dataset": "validation", "map": name}
        _check_refusal(name, ask("POST", "/v1/models/digits/calibrators", json=fit), (404, 422))
    # A segment can be any text; an undeclared segment counts as no segment.
    answer = ask("POST", _CALIBRATE, json=_ROW, params={"segment": _EVIL})
    assert answer.status_code == 200


def test_malformed_headers_are_rejected(server: Server) -> None:
    """Line ends and NULs in headers, two lengths, a false length, malformed chunks."""
    post = f"POST {_CALIBRATE} HTTP/1.1"
    body = json.dumps(_ROW).encode()
    heads = (
        "Idempotency-Key: a\0b", "Idempotency-Key: a\x1b[31m", "X: a\rb", "Content-Length: -1",
        "Content-Length: 99999999999999999999", "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: chunked\r\nContent-Length: 5", "Content-Type: \x1b[31m", "X" * 100_000,
        "Accept: " + "a/b;q=0.1," * 2000, "Inference-Header-Content-Length: 99",
        "Content-Encoding: \x1b[2J",
    )  # fmt: skip
    for head in heads:
        answer, text = _raw(server, f"{post}\r\n{head}", body, length="length" not in head.lower())
        assert not answer or 200 <= int(answer.split()[1]) < 500, (head[:80], answer)
        _check_text(head[:80], text)
    assert server.client.post(_CALIBRATE, json=_ROW).status_code == 200


def test_malformed_grpc_messages_are_rejected(server: Server) -> None:
    """gRPC: bytes that are no message, missing matrices, a message over the limit."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.unary_unary("/recalib.v1.Calibration/Calibrate")
        lying = pb.CalibrateRequest(model="digits")
        lying.matrix.rows, lying.matrix.classes, lying.matrix.raw = 2**31 - 1, 2**31 - 1, b"1"
        evil = pb.CalibrateRequest(model=_EVIL, matrix=pb.Matrix(rows=1, classes=4, raw=bytes(16)))
        for message in (b"\xff" * 1000, b"\x0a\xff\xff\xff\xff\x0f", lying.SerializeToString(),
                        evil.SerializeToString(), bytes(65 << 20)):  # fmt: skip
            with pytest.raises(grpc.RpcError) as excinfo:
                call(message, timeout=PATIENCE_SECONDS)
            code = excinfo.value.code()
            allowed = ("INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED")
            assert code.name in allowed, (message[:40], excinfo.value)
            _check_text(message[:40], excinfo.value.details())


def test_hostile_text_is_escaped_in_the_log(server: Server) -> None:
    """No escape sequences, no forged lines, no tracebacks of rejected requests."""
    log = server.log()
    assert "Traceback" not in log
    assert "\x1b" not in log
    assert not [line for line in log.splitlines() if line.startswith("2026-01-01 00:00:00")]


def _check_refusal(name: str, answer: Any, statuses: tuple[int, ...]) -> None:
    assert answer.status_code in statuses, (name, answer.status_code, answer.text[:500])
    document = answer.json()
    assert document.get("detail") or document.get("error"), (name, document)
    assert len(answer.content) < 4000, name
    _check_text(name, answer.text)


def _check_text(name: object, text: str) -> None:
    """Check for source code and for control characters."""
    assert "Traceback" not in text, name
    assert '.py"' not in text, name
    assert "\x1b" not in text, name


def _raw(server: Server, start: str, body: bytes, *, length: bool = True) -> tuple[str, str]:
    """Send raw request bytes; return the head and the body of the answer."""
    place = urlsplit(server.url)
    own = f"Content-Length: {len(body)}\r\n" if length else ""
    head = f"{start}\r\nHost: {place.netloc}\r\nConnection: close\r\n{own}\r\n"
    with socket.create_connection((place.hostname, place.port), PATIENCE_SECONDS) as connection:
        try:
            connection.sendall(head.encode() + body)
            if not length:  # the server may wait for more
                connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except ConnectionError:  # refused before it was read
            return "", ""
    answer, _, rest = received.decode("latin-1").partition("\r\n\r\n")
    return answer, rest


def _peak_mib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) >> 10
