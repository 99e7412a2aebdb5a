"""Limits of callers over REST, gRPC and several processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvicorn
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from recalib.core.access import ANONYMOUS, Limits, Principal
from recalib.errors import InputError, LimitedError, TooLargeError
from recalib.registry import Registry
from recalib.settings import Settings
from service.access.limits import FailedAttempts, Limiter
from service.access.shared_usage import (
    _ROWS,
    REQUESTS,
    USAGE_FILE,
    SharedUsage,
    _mark,
    file_size,
)
from service.app import create_app
from tests.fitting.conftest import draw
from tests.service.conftest import Service, npz
from tests.service.stubs import SERVICES, V2, Rpc, refused


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def entered(limiter: Limiter, principal: Principal) -> Iterator[None]:
    """Admit a request for the length of the block."""
    limiter.enter(principal)
    try:
        yield
    finally:
        limiter.leave(principal)


def _caller(name: str = "web", **limits: Any) -> Principal:
    return Principal(name, frozenset({"predict"}), limits=Limits(**limits))


def test_caller_with_running_requests_keeps_its_row() -> None:
    """Two callers without limits of rates, whose rows are searched from the same place."""
    usage = SharedUsage()
    first = usage.row("a")
    usage.add_running(first, 2)
    names = (f"b{number}" for number in range(10**6))
    other = next(name for name in names if (_mark(name) - _mark("a")) % _ROWS == 0)
    second = usage.row(other)
    usage.add_running(second, 1)
    assert usage.row("a") == first != second
    assert (usage.running(first), usage.running(second)) == (2, 1)


@settings(max_examples=40)
@given(
    waits=st.lists(st.floats(0, 0.5), min_size=5, max_size=200),
    rate=st.sampled_from([0.5, 1.0, 3.0, 100.0]),
)
def test_rate_allows_a_burst_of_one_second(waits: list[float], rate: float) -> None:
    """This holds for any arrival times; a caller that keeps to the rate is never rejected."""
    clock = Clock()
    limiter = Limiter(SharedUsage(), clock)
    let_in: list[float] = []
    for wait in waits:
        clock.now += wait
        with contextlib.suppress(LimitedError):
            limiter.enter(_caller(requests_per_second=rate))
            let_in.append(clock.now)
    for first, begin in enumerate(let_in):
        for count, end in enumerate(let_in[first:], 1):
            assert count <= rate * (end - begin) + rate + 1 + 1e-6
    steady = _caller("steady", requests_per_second=rate)
    for _ in range(20):
        limiter.enter(steady)
        clock.now += 1 / rate


def test_caller_is_admitted_after_the_stated_wait() -> None:
    clock = Clock()
    limiter = Limiter(SharedUsage(), clock)
    web = _caller(requests_per_second=0.25, rows_per_second=100)
    limiter.enter(web)
    # A batch of any size is admitted; later requests wait until its rows are paid off.
    limiter.take_rows(web, 100_000)
    for again, rows in ((limiter.enter, ()), (limiter.take_rows, (1,))):
        with pytest.raises(LimitedError, match="try again in") as excinfo:
            again(web, *rows)
        clock.now += excinfo.value.retry_after_seconds - 1.001
        with pytest.raises(LimitedError):
            again(web, *rows)
        clock.now += 1.002
        again(web, *rows)
    # Other callers and callers without limits are not affected.
    limiter.enter(_caller("other", requests_per_second=1))
    for _ in range(1000):
        limiter.enter(ANONYMOUS)
        limiter.take_rows(ANONYMOUS, 10**9)


def test_concurrent_requests_are_counted_until_they_end() -> None:
    limiter = Limiter(SharedUsage(), Clock())
    web = _caller(concurrency=2)
    with contextlib.ExitStack() as work:
        for _ in range(2):
            work.enter_context(entered(limiter, web))
        with pytest.raises(LimitedError, match="2 requests in work"), entered(limiter, web):
            pass
        with entered(limiter, _caller("other", concurrency=1)):
            pass
    with pytest.raises(RuntimeError), entered(limiter, web):
        raise RuntimeError
    with entered(limiter, web), entered(limiter, web):
        pass


def test_body_size_is_limited() -> None:
    limiter = Limiter(SharedUsage(), Clock())
    limiter.check_body(_caller(body_bytes=10), 10)
    with pytest.raises(TooLargeError, match="at most 10 bytes"):
        limiter.check_body(_caller(body_bytes=10), 11)
    for boundless in (_caller(body_bytes=0), ANONYMOUS, None):
        limiter.check_body(boundless, 10**9)


def test_key_limits_override_the_defaults() -> None:
    usual = Limits(10.0, 20.0, 3, None)
    assert Limits(requests_per_second=0, concurrency=5).over(usual) == Limits(0, 20.0, 5, None)
    assert Limits().is_none
    assert Limits(0, 0.0, 0, 0).is_none
    anna = Principal("anna", frozenset({"fit"}))
    assert anna.limited(Limits()) == anna
    assert anna.limited(usual).limits == usual
    free = Principal("free", frozenset({"fit"}), limits=Limits(0, 0, 0, 0))
    assert free.limited(usual).limits is None
    for wrong in (-1.0, float("nan"), float("inf"), 1e13):
        with pytest.raises(InputError, match="rows_per_second"):
            Limits(rows_per_second=wrong).checked()


def test_full_table_replaces_idle_callers_first() -> None:
    """Each new caller is admitted; the entry of a busy caller is replaced last."""
    clock = Clock()
    limiter = Limiter(SharedUsage(), clock)
    busy = _caller("busy", requests_per_second=0.001)
    limiter.enter(busy)
    for number in range(10_000):
        limiter.enter(_caller(f"c{number}", requests_per_second=1000))
    with pytest.raises(LimitedError):
        limiter.enter(busy)


_CHILD = """
import sys, time
from recalib.core.access import Limits, Principal
from service.access.limits import Limiter
web = Principal("web", frozenset(), limits=Limits(requests_per_second=100, concurrency=3))
rate_only = Principal("web", frozenset(), limits=Limits(requests_per_second=100))
limiter = Limiter()
limiter.enter(web)
for _ in range(20):
    limiter.enter(rate_only)
print("in", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_processes_of_a_server_share_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running requests of a killed process stop counting when another process replaces it."""
    file = tmp_path / "ledger"
    with file.open("wb") as target:
        target.truncate(file_size(1))
    monkeypatch.setenv(USAGE_FILE, str(file))
    command = [sys.executable, "-c", _CHILD]
    children = []
    try:
        for _ in range(2):
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ))
            assert children[-1].stdout is not None
            assert children[-1].stdout.readline() == b"in\n"
        # The table has two columns; a third process does not share one of them.
        third = subprocess.run(command, capture_output=True, check=False)
        assert b"more processes than 2" in third.stderr
        children[0].kill()
        children[0].wait()
        limiter = Limiter()
        web = Principal("web", frozenset(), limits=Limits(requests_per_second=100, concurrency=2))
        ledger, row = limiter._shared_usage, limiter._row(web)
        assert ledger.running(row) == 1
        # Other processes admitted 42 requests: 0.4 seconds at this rate.
        begin = ledger.until(row, REQUESTS)
        assert begin > 0
        with entered(limiter, web):
            assert ledger.until(row, REQUESTS) >= begin
            assert ledger.running(row) == 2
            with pytest.raises(LimitedError, match="in work"), entered(limiter, web):
                pass
    finally:
        for child in children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()


def test_wrong_keys_are_counted_by_address_for_a_while() -> None:
    clock = Clock()
    failed = FailedAttempts(clock)
    for _ in range(30):
        failed.note("10.0.0.1")
    with pytest.raises(LimitedError) as excinfo:
        failed.note("10.0.0.1")
    assert excinfo.value.retry_after_seconds == 1
    failed.note("10.0.0.2")
    clock.now += 1
    failed.note("10.0.0.1")
    with pytest.raises(LimitedError):
        failed.note("10.0.0.1")
    # One customer has a whole IPv6 network.
    for last in range(30):
        failed.note(f"2001:db8::{last:x}")
    with pytest.raises(LimitedError):
        failed.note("2001:db8::ffff")
    failed.note("2001:db8:0:1::1")
    # A socket for IPv4 and IPv6 names IPv4 clients so: they are no network.
    for _ in range(30):
        failed.note("::ffff:10.0.0.3")
    failed.note("::ffff:10.0.0.4")
    with pytest.raises(LimitedError):
        failed.note("10.0.0.3")
    for number in range(10_000):
        failed.note(f"10.1.{number // 256}.{number % 256}")
    assert len(failed) == 4096
    for odd in ("", "testclient", "[::1]", "\n"):
        failed.note(odd)


class Limited:
    """A server with keys that have limits, and a key without limits."""

    def __init__(self, client: Any, keys: dict[str, str]) -> None:
        self.client = client
        self.keys = keys

    def ask(self, key: str, path: str = "/v1/models/m/calibrate", rows: int = 1) -> Any:
        logits = [[0.1, 0.2, 0.3, 0.4]] * rows
        body: Any = {"logits": logits}
        if path.startswith("/v2"):
            data = [value for row in logits for value in row]
            tensor = {"name": "logits", "datatype": "FP32", "shape": [rows, 4], "data": data}
            body = {"inputs": [tensor]}
        return self.client.post(path, json=body, headers=self.header(key))

    def header(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[key]}"}


@pytest.fixture(scope="module")
def prepared(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Settings, dict[str, str]]:
    """A model with a champion, and keys; SQLite only: the database does not affect limits."""
    folder = tmp_path_factory.mktemp("limited")
    shutil.copy(sqlite_template, folder / "recalib.db")
    settings = Settings(
        home=folder,
        grpc_port=0,
        require_keys=True,
        refresh_seconds=3600,
        load_seconds=60,
        key_rows_per_second=5.0,
    )
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    own = {
        "free": Limits(rows_per_second=0),
        "usual": Limits(),
        "slow": Limits(requests_per_second=0.001),
        "one": Limits(concurrency=1, rows_per_second=0),
        "small": Limits(body_bytes=200, rows_per_second=0),
        "patient": Limits(queued_jobs=2),
    }
    with registry.transaction() as tx:
        keys = {
            name: tx.api_keys.create(name, ["admin"], limits=limits) for name, limits in own.items()
        }
    open_to_all = settings.model_copy(update={"require_keys": False, "grpc_port": -1})
    with TestClient(create_app(open_to_all)) as client:
        service = Service(client, registry)
        service.model("m", 4)
        assert service.upload(npz(*draw(300, 4, 3.0)), model="m").status_code == 201
        service.ask_fit(model="m", promote=True)
        service.work()
    registry.close()
    return settings, keys


@pytest.fixture
def limited(prepared: tuple[Settings, dict[str, str]]) -> Iterator[Limited]:
    settings, keys = prepared
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        limited = Limited(client, dict(keys))
        assert limited.ask("free").status_code == 200
        yield limited


def _counted(limited: Limited, limit: str) -> float:
    text = limited.client.get("/metrics", headers=limited.header("free")).text
    begin = f'recalib_limited_requests_total{{limit="{limit}"}} '
    return sum(float(line[len(begin) :]) for line in text.splitlines() if line.startswith(begin))


def test_key_has_a_limit_of_queued_jobs(limited: Limited) -> None:
    """Others enqueue jobs meanwhile, and jobs that have ended do not count."""
    client, before = limited.client, _counted(limited, "jobs")
    evaluation = {"dataset": "validation", "versions": ["champion"]}

    def ask(key: str) -> Any:
        header = limited.header(key)
        return client.post("/v1/models/m/evaluations", json=evaluation, headers=header)

    jobs = [ask("patient") for _ in range(2)]
    assert [job.status_code for job in jobs] == [202, 202]
    refusal = ask("patient")
    assert (refusal.status_code, refusal.headers["retry-after"]) == (429, "60")
    assert "'patient' has 2 queued jobs, its limit" in refusal.json()["detail"]
    assert _counted(limited, "jobs") == before + 1
    assert ask("free").status_code == 202
    job = f"/v1/jobs/{jobs[0].json()['id']}"
    assert client.delete(job, headers=limited.header("free")).json()["state"] == "cancelled"
    assert ask("patient").status_code == 202


def test_too_many_requests_or_rows_are_429(limited: Limited) -> None:
    before = {what: _counted(limited, what) for what in ("requests", "rows")}
    assert limited.ask("slow").status_code == 200
    answer = limited.ask("slow")
    assert (answer.status_code, answer.json()["title"]) == (429, "Too many requests")
    assert answer.headers["content-type"] == "application/problem+json"
    assert 900 <= int(answer.headers["retry-after"]) <= 1000
    assert answer.json()["detail"].startswith("'slow' is limited to 0.001 requests a second")
    # On every route.
    models = limited.client.get("/v1/models", headers=limited.header("slow"))
    assert models.status_code == 429
    plain = limited.ask("slow", "/v2/models/m/infer")
    assert (plain.status_code, list(plain.json())) == (429, ["error"])
    assert plain.headers["retry-after"]
    for path in ("/v1/models/m/calibrate", "/v2/models/m/infer"):
        assert limited.ask("usual", path, rows=40).status_code in (200, 429)
        answer = limited.ask("usual", path)
        assert answer.status_code == 429
        assert "rows" in answer.text
    assert limited.ask("usual", rows=1).headers["retry-after"]
    assert limited.client.get("/v1/models", headers=limited.header("usual")).status_code == 200
    assert limited.ask("free", rows=50).status_code == 200
    assert _counted(limited, "requests") == before["requests"] + 3
    assert _counted(limited, "rows") > before["rows"]


def test_body_over_the_key_limit_is_413(limited: Limited) -> None:
    assert limited.ask("small").status_code == 200
    for path in ("/v1/models/m/calibrate", "/v2/models/m/infer"):
        assert limited.ask("small", path, rows=30).status_code == 413
    upload = limited.client.put(
        "/v1/models/m/datasets/x",
        content=npz(*draw(300, 4, 3.0)),
        headers={**limited.header("small"), "Content-Type": "application/x-npz"},
    )
    assert upload.status_code == 413
    pieces = limited.client.put(
        "/v1/models/m/datasets/x",
        content=iter([b"x" * 150, b"x" * 150]),
        headers={**limited.header("small"), "Content-Type": "application/x-npz"},
    )
    assert pieces.status_code == 413


def test_grpc_has_the_same_limits(limited: Limited) -> None:
    port = limited.client.app.state.grpc_port

    def request(key: str, rows: int = 1) -> Any:
        kind = SERVICES["Calibration"].methods_by_name["Calibrate"].input_type._concrete_class
        message = kind(model="m")
        message.matrix.rows, message.matrix.classes = rows, 4
        message.matrix.values.extend([0.1] * 4 * rows)
        return message, {"metadata": [("authorization", f"Bearer {limited.keys[key]}")]}

    with Rpc(f"127.0.0.1:{port}") as rpc:
        message, more = request("slow")
        rpc.calibration.calibrate(message, **more)
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
        error = refused(code, rpc.calibration.calibrate, message, **more)
        assert "requests a second" in error.details()
        details = rpc_status.from_call(error).details
        again = error_details_pb2.RetryInfo()
        assert details[0].Unpack(again)
        assert 900 <= again.retry_delay.seconds <= 1000
        message, more = request("usual", 40)
        rpc.calibration.calibrate(message, **more)
        assert "rows" in refused(code, rpc.calibration.calibrate, message, **more).details()
        # Rows of stream messages count as well.
        message, more = request("usual")
        error = refused(code, rpc.calibration.calibrate_stream, iter([message]), **more)
        assert "rows" in error.details()
        infer = V2.methods_by_name["ModelInfer"].input_type._concrete_class(model_name="m")
        tensor = infer.inputs.add(name="logits", datatype="FP32", shape=[1, 4])
        tensor.contents.fp32_contents.extend([0.1] * 4)
        assert "rows" in refused(code, rpc.v2.model_infer, infer, **more).details()
        message, more = request("small", 60)
        error = refused(code, rpc.calibration.calibrate, message, **more)
        assert "at most 200 bytes" in error.details()
        message, more = request("one")
        for _ in range(3):
            rpc.calibration.calibrate(message, **more)


def test_concurrent_requests_over_the_limit_are_429(limited: Limited) -> None:
    limiter = limited.client.app.state.recalib.access.limiter
    principal = limited.client.app.state.recalib.access.principal(f"Bearer {limited.keys['one']}")
    with entered(limiter, principal):
        answer = limited.ask("one")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    # All requests have ended, with any outcome.
    for _ in range(3):
        assert limited.ask("one").status_code == 200
        assert limited.ask("one", "/v1/models/none/calibrate").status_code == 404
        assert limited.client.get("/nowhere", headers=limited.header("one")).status_code == 404


def test_repeated_wrong_keys_are_429_and_good_keys_work(limited: Limited) -> None:
    limited.keys["wrong"] = limited.keys["free"][:-2] + "xx"
    statuses = [limited.ask("wrong").status_code for _ in range(40)]
    assert statuses[:30] == [401] * 30
    assert 429 in statuses[30:]
    assert limited.ask("free").status_code == 200
    assert limited.client.get("/v1/models").status_code == 401


def test_limits_apply_to_requests_over_sockets(limited: Limited) -> None:
    """The limits also apply to requests over real sockets."""
    app = limited.client.app
    with _served(app) as port:
        assert [_status(port, limited.keys["slow"]) for _ in range(2)] == [200, 429]
        assert [_status(port, limited.keys["usual"], rows) for rows in (8, 1)] == [200, 429]
        assert _status(port, limited.keys["small"], 30) == 413
        assert _status(port, limited.keys["one"]) == 200
        principal = app.state.recalib.access.principal(f"Bearer {limited.keys['one']}")
        with entered(app.state.recalib.access.limiter, principal):
            assert _status(port, limited.keys["one"]) == 429
        assert _status(port, limited.keys["free"]) == 200
        statuses = [_status(port, "wrong") for _ in range(40)]
        assert statuses[:30] == [401] * 30
        assert 429 in statuses[30:]


def _status(port: int, key: str, rows: int = 1) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"logits": [[0.1, 0.2, 0.3, 0.4]] * rows})
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/models/m/calibrate", body, headers)
    answer = connection.getresponse()
    answer.read()
    if answer.status == 429:
        assert int(answer.headers["Retry-After"]) >= 1
    connection.close()
    return answer.status


@contextlib.contextmanager
def _served(app: Any) -> Iterator[int]:
    """Serve on a socket; the test client has started the application."""
    config = uvicorn.Config(app, port=0, lifespan="off", proxy_headers=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
