"""The limit of requests and RPCs in progress."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status

from recalib.errors import LimitedError
from recalib.settings import Settings
from service.access.load_shedding import LoadShedding
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.operations import OPERATIONS
from tests.end_to_end.programs import until
from tests.service.conftest import Service
from tests.service.stubs import Rpc, refused

pytestmark = pytest.mark.sqlite_only


def test_limit_falls_while_the_event_loop_lags_and_grows_back() -> None:
    load_shedding = LoadShedding(Settings(max_requests=64))
    limits = []
    for lag in (0.0, 0.3, 0.3, 0.3, 0.1, 0.0, 0.0, 0.0):
        load_shedding.adjust(lag)
        limits.append(load_shedding.limit)
    assert limits == [64, 32, 16, 16, 32, 48, 64, 64]


def test_refusals_wait_longer_if_there_are_more() -> None:
    load_shedding = LoadShedding(Settings())
    seconds = [load_shedding.hold() for _ in range(2_000)]
    assert (seconds[0], seconds[-1]) == (0.25, 0.9)
    assert seconds == sorted(seconds)
    load_shedding.release(2_000)
    assert load_shedding.hold() == 0.25


def test_blocked_event_loop_lowers_the_limit() -> None:
    load_shedding = LoadShedding(Settings(max_requests=64))
    lags = list[float]()

    async def run() -> None:
        task = asyncio.create_task(load_shedding.keep_measuring())
        await asyncio.sleep(0)
        time.sleep(0.3)
        while not lags:
            await asyncio.sleep(0.01)
        task.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load_shedding, "adjust", lags.append)
        asyncio.run(run())
    assert lags[0] > 0.2


def test_health_metrics_and_labels_have_places_beyond_the_limit() -> None:
    load_shedding = LoadShedding(Settings(max_requests=4))
    load_shedding.waiting = 7
    for path in (b"/livez", b"/readyz", b"/metrics", b"/v1/models/digits/labels"):
        assert load_shedding.has_place(7 + 4, path)
        assert load_shedding.has_place(7 + 19, path)
        assert not load_shedding.has_place(7 + 20, path)
    for path in (b"/v1/models", b"/v1/models/digits/calibrate", b"/v1/models/labels-of"):
        assert load_shedding.has_place(7 + 3, path)
        assert not load_shedding.has_place(7 + 4, path)


def test_place_of_an_rpc_is_returned_after_an_error() -> None:
    load_shedding = LoadShedding(Settings(max_requests=1))
    with contextlib.suppress(ValueError), load_shedding.count_rpc(OPERATIONS["get_job"]):
        with pytest.raises(LimitedError, match="too many requests"):
            load_shedding.check_rpc(OPERATIONS["get_job"])
        raise ValueError
    load_shedding.check_rpc(OPERATIONS["get_job"])


def test_address_has_a_number_of_rpcs_also_of_open_ones(
    service: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams without a key count; another address is not affected."""
    load_shedding = service.client.app.state.recalib.load_shedding  # type: ignore[attr-defined]
    monkeypatch.setattr(load_shedding, "_address_rpcs", 3)
    check = health_pb2.HealthCheckRequest()
    streams = [rpc.health.watch(check) for _ in range(3)]
    for stream in streams:
        next(stream)
    error = refused(grpc.StatusCode.RESOURCE_EXHAUSTED, rpc.health.check, check)
    assert "this address has too many RPCs" in error.details()
    with load_shedding.count_rpc_of("192.0.2.1"):
        pass
    for stream in streams:
        stream.cancel()
    serving = health_pb2.HealthCheckResponse.SERVING
    until(lambda: not load_shedding._rpcs_by_address["127.0.0.1"], "the streams to end")
    assert rpc.health.check(check).status == serving


def test_rpcs_above_the_limit_are_refused_except_health_and_labels(
    service: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.model()
    load_shedding = service.client.app.state.recalib.load_shedding  # type: ignore[attr-defined]
    monkeypatch.setattr(load_shedding, "adjust", lambda lag: None)  # on a busy machine, too
    with contextlib.ExitStack() as stack:
        for _ in range(load_shedding.limit):
            stack.enter_context(load_shedding.count_rpc(OPERATIONS["get_model"]))
        request = pb.GetModelRequest(model="digits")
        error = refused(grpc.StatusCode.RESOURCE_EXHAUSTED, rpc.models.get_model, request)
        assert "too many requests in progress" in error.details()
        retry = error_details_pb2.RetryInfo()
        assert rpc_status.from_call(error).details[0].Unpack(retry)
        assert retry.retry_delay.seconds == 1
        serving = health_pb2.HealthCheckResponse.SERVING
        assert rpc.health.check(health_pb2.HealthCheckRequest()).status == serving
        labels = [pb.LateLabel(prediction_id="unknown", index=1)]
        answer = rpc.labels.add_labels(pb.AddLabelsRequest(model="digits", labels=labels))
        assert answer.counts.invalid == 1
    assert rpc.models.get_model(request).name == "digits"
