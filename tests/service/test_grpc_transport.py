"""gRPC transport: errors, deadlines, health, reflection, metrics."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_status import rpc_status
from starlette.testclient import TestClient

from recalib import errors
from recalib.registry import Registry
from recalib.settings import Settings
from service.app import create_app
from service.grpc.errors import CODES, failure_of
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.health.rpc import Health
from service.inference.rpc import WIRE_NAME
from tests.end_to_end.programs import PATIENCE_SECONDS, until
from tests.service.conftest import Service, npz
from tests.service.stubs import SERVICES, Rpc, refused, violations
from tests.service.test_grpc_workflow import array, matrix, pieces, question
from tests.service.test_transport import sample

pytestmark = pytest.mark.sqlite_only

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ["", WIRE_NAME, *(item.full_name for item in SERVICES.values())]


def test_every_error_has_a_status() -> None:
    """A new error class needs a row in the table."""
    assert set(CODES) == {getattr(errors, name) for name in errors.__all__} - {
        errors.RecalibWarning
    }


def test_error_details_fit_into_metadata() -> None:
    """Metadata holds 8 KB; an error with longer details would be lost."""
    long = errors.InputError("x" * 9_000, found="\ud800" * 9_000, accepted="y" * 9_000)
    failure = failure_of(long)
    ((_, details),) = failure.metadata()
    assert len(details) + len(failure.message.encode()) < 8_000
    assert failure_of(errors.NotFoundError("model", "z" * 9_000)).message.endswith("...")


def test_schema_violations_name_the_field(service: Service, rpc: Rpc) -> None:
    """An error of pydantic becomes INVALID_ARGUMENT with the field."""
    request = pb.CreateModelRequest(name="digits", classes=1)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.create_model, request)
    assert set(violations(error)) == {"classes"}
    nothing = pb.CreateModelRequest(name="digits")
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.create_model, nothing)
    assert set(violations(error)) == {"classes"}
    alias = pb.SetAliasRequest(model="digits", alias="champion", version=0)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibrators.set_alias, alias)
    assert set(violations(error)) == {"version"}
    job = pb.ListJobsRequest(state=99)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.jobs.list_jobs, job)
    assert set(violations(error)) == {"state"}
    for limit in (-1, 1001):
        page = pb.ListModelsRequest(limit=limit)
        refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.list_models, page)
    cursor = pb.ListModelsRequest(cursor="?")
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.models.list_models, cursor)
    assert set(violations(error)) == {"cursor"}
    for version in (0, -1, 2**31, 2**62):
        request = pb.GetCalibratorRequest(model="digits", version=version)
        refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibrators.get_calibrator, request)
        refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibrators.get_calibrator_onnx, request)


BAD: dict[str, tuple[pb.Matrix, str]] = {
    "nothing": (pb.Matrix(), "matrix"),
    "no values": (pb.Matrix(rows=1, classes=4), "matrix"),
    "both forms": (pb.Matrix(rows=1, classes=1, raw=bytes(4), values=[1]), "matrix"),
    "too few values": (pb.Matrix(rows=2, classes=4, values=[1]), "matrix.values"),
    "too few bytes": (pb.Matrix(rows=1, classes=4, raw=bytes(15)), "matrix.raw"),
    "bytes of another type": (
        pb.Matrix(rows=1, classes=4, raw=bytes(16), datatype=pb.DATATYPE_FP64), "matrix.raw",
    ),
    "an unknown type": (
        pb.Matrix(rows=1, classes=4, raw=bytes(16), datatype=77), "matrix.datatype",
    ),
    "below zero": (pb.Matrix(rows=-1, classes=-4, raw=bytes(16)), "matrix"),
    "more than there can be": (pb.Matrix(rows=2**62, classes=4, raw=bytes(16)), "matrix.raw"),
    "other K": (matrix([[1, 2]]), "logits"),
    "NaN": (matrix([[np.nan, 0, 0, 0]]), "logits[0][0]"),
}  # fmt: skip


def test_other_bad_calibrate_requests_are_rejected(ready: Service, rpc: Rpc) -> None:
    for case, (message, place) in BAD.items():
        request = pb.CalibrateRequest(model="digits", matrix=message)
        error = refused(grpc.StatusCode.INVALID_ARGUMENT, rpc.calibration.calibrate, request)
        assert set(violations(error)) == {place}, case


def test_calibrate_with_unknown_names_is_not_found(ready: Service, rpc: Rpc) -> None:
    ready.model("new", classes=4, serve_uncalibrated=False)
    rows = [[0.0] * 4]
    calibrate = rpc.calibration.calibrate
    refused(grpc.StatusCode.NOT_FOUND, calibrate, question(rows, model="unknown"))
    refused(grpc.StatusCode.NOT_FOUND, calibrate, question(rows, calibrator="9"))
    refused(grpc.StatusCode.NOT_FOUND, calibrate, question(rows, calibrator="shadow"))
    refused(grpc.StatusCode.FAILED_PRECONDITION, calibrate, question(rows, model="new"))
    refused(grpc.StatusCode.NOT_FOUND, rpc.jobs.get_job, pb.GetJobRequest(id="none"))
    refused(grpc.StatusCode.NOT_FOUND, rpc.models.get_model, pb.GetModelRequest(model="none"))
    request = pb.GetCalibratorRequest(model="digits", version=9)
    refused(grpc.StatusCode.NOT_FOUND, rpc.calibrators.get_calibrator, request)
    refused(grpc.StatusCode.NOT_FOUND, rpc.calibrators.get_calibrator_parameters, request)


def test_bytes_that_are_no_message_are_rejected(service: Service, rpc: Rpc) -> None:
    call = rpc.channel.unary_unary("/recalib.v1.Models/GetModel")
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, call, b"\xff\xff\xff")
    assert set(violations(error)) == {"message"}


def test_other_bad_upload_requests_are_rejected(service: Service, rpc: Rpc, data, tmp_path) -> None:
    """No file is left on the disk."""
    service.model()
    body = npz(*data)
    upload = rpc.datasets.upload_dataset
    bad = grpc.StatusCode.INVALID_ARGUMENT
    assert "header" in violations(refused(bad, upload, iter([])))
    assert "header" in violations(refused(bad, upload, list(pieces(body))[1:].__iter__()))
    twice = [*pieces(body), next(pieces(body))]
    assert "chunk" in violations(refused(bad, upload, iter(twice)))
    assert "body" in violations(refused(bad, upload, pieces(b"")))
    assert "Content-Type" in violations(refused(bad, upload, pieces(body, content_type="text/x")))
    assert "dataset" in violations(refused(bad, upload, pieces(body, name="a b")))
    refused(grpc.StatusCode.NOT_FOUND, upload, pieces(body, model="unknown"))
    large = refused(grpc.StatusCode.RESOURCE_EXHAUSTED, upload, pieces(bytes(1_000_001), 50_000))
    assert "at most 1000000 bytes" in violations(large)["body"]
    assert len(rpc.datasets.list_datasets(pb.ListDatasetsRequest(model="digits")).items) == 0
    assert list((tmp_path / "blobs").rglob("temporary/*")) == []


def _address(client: Any) -> str:
    return f"127.0.0.1:{client.app.state.grpc_port}"


def test_large_messages_are_those_of_operations_with_large_bodies(
    database_url: str, blob_url: str
) -> None:
    """A file with parameters may be larger than a document; JSON in REST says so."""
    settings = Settings(database_url=database_url, blob_url=blob_url, grpc_port=0)
    content = bytes(2**20 + 1)
    with TestClient(create_app(settings)) as client, Rpc(_address(client)) as rpc:
        rpc.models.create_model(pb.CreateModelRequest(name="digits", classes=4))
        create = pb.CreateCalibratorRequest(model="digits", parameters=content)
        bad = grpc.StatusCode.INVALID_ARGUMENT
        error = refused(bad, rpc.calibrators.create_calibrator, create)
        assert set(violations(error)) == {"parameters"}
        get = pb.GetModelRequest(model="d" * len(content))
        too_large = grpc.StatusCode.RESOURCE_EXHAUSTED
        assert set(violations(refused(too_large, rpc.models.get_model, get))) == {"message"}


def test_deadline_ends_the_call(ready: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets the error at once, although the work continues."""

    released = threading.Event()

    def slow(*args: Any) -> Any:
        released.wait(PATIENCE_SECONDS)
        raise errors.ConflictError("too late to matter")

    monkeypatch.setattr("service.models.rest.Model.of", slow)
    request = pb.GetModelRequest(model="digits")
    started = time.monotonic()
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, rpc.models.get_model, request, timeout=0.2)
    assert time.monotonic() - started < PATIENCE_SECONDS / 2
    released.set()


def test_expired_requests_are_not_started(
    ready: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the event loop was blocked and reads the request too late."""
    began: list[str] = []

    async def looking(state: Any, request: Any) -> Any:
        began.append("work")

    monkeypatch.setattr("service.predict.rpc._load", looking)
    portal = ready.client.portal
    assert portal is not None
    is_held, may_continue = threading.Event(), threading.Event()
    portal.start_task_soon(_hold_up, is_held, may_continue)
    assert is_held.wait(PATIENCE_SECONDS)
    late = rpc.calibration.calibrate
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, late, question([[0.0] * 4]), timeout=0.3)
    may_continue.set()
    time.sleep(1.0)
    assert began == []


async def _hold_up(is_held: threading.Event, may_continue: threading.Event) -> None:
    """Block the event loop."""
    is_held.set()
    may_continue.wait(PATIENCE_SECONDS)


def test_asynchronous_client_calls_concurrently(ready: Service, rpc: Rpc, data) -> None:
    """Many concurrent calls of gRPC's asynchronous client."""
    expected = ready.calibrate(data[0][:3]).json()["probabilities"]

    async def ask() -> list[Any]:
        async with grpc.aio.insecure_channel(rpc.address) as channel:
            call = channel.unary_unary(
                "/recalib.v1.Calibration/Calibrate",
                request_serializer=pb.CalibrateRequest.SerializeToString,
                response_deserializer=pb.CalibrateResponse.FromString,
            )
            return await asyncio.gather(*(call(question(data[0][:3])) for _ in range(50)))

    for answer in asyncio.run(ask()):
        np.testing.assert_allclose(array(answer), expected, rtol=1e-6)


def test_livez_and_readyz(service: Service, rpc: Rpc) -> None:
    """Health of the whole server and of each service."""
    for name in SERVICES:
        request = health_pb2.HealthCheckRequest(service=name)
        assert rpc.health.check(request).status == SERVING
    listed = rpc.health.list(health_pb2.HealthListRequest()).statuses
    assert set(listed) == set(SERVICES)
    unknown = health_pb2.HealthCheckRequest(service="none")
    refused(grpc.StatusCode.NOT_FOUND, rpc.health.check, unknown)


def test_loaded_calibrators_serve_without_the_registry(
    ready: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = [[0.0, 1.0, 2.0, 3.0]]
    rpc.calibration.calibrate(question(row))

    def gone(self: Registry) -> None:
        raise errors.UnavailableError("the database cannot be reached")

    monkeypatch.setattr(Registry, "reading", gone)
    monkeypatch.setattr(Registry, "check", gone)
    assert rpc.calibration.calibrate(question(row)).calibrator.version == 1
    assert rpc.health.check(health_pb2.HealthCheckRequest()).status == SERVING
    error = refused(
        grpc.StatusCode.UNAVAILABLE, rpc.models.get_model, pb.GetModelRequest(model="digits")
    )
    again = error_details_pb2.RetryInfo()
    assert rpc_status.from_call(error).details[0].Unpack(again)
    assert again.retry_delay.seconds == 1


def test_not_ready_without_calibrators_and_registry(
    service: Service, rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Registry) -> None:
        raise errors.UnavailableError("the database cannot be reached")

    monkeypatch.setattr(Registry, "check", gone)
    for name in SERVICES:
        request = health_pb2.HealthCheckRequest(service=name)
        assert rpc.health.check(request).status == NOT_SERVING


def test_drain_is_reported_during_a_health_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status from before the drain is sent first, and the drain afterwards."""
    state: Any = SimpleNamespace(settings=SimpleNamespace(refresh_seconds=60.0))
    health = Health(state, [])

    def draining(_state: Any) -> Any:
        loop.call_soon_threadsafe(health.drain)  # before the returned value arrives there
        return SimpleNamespace(ready=True)

    async def reported() -> list[int]:
        context: Any = None
        return [response.status async for response in health.watch(request, context)]

    monkeypatch.setattr("service.health.rpc.readiness", draining)
    request, loop = health_pb2.HealthCheckRequest(), asyncio.new_event_loop()
    try:
        statuses = loop.run_until_complete(reported())
    finally:
        loop.close()
    status = health_pb2.HealthCheckResponse
    assert statuses == [status.SERVING, status.NOT_SERVING]


def test_health_changes_are_streamed(service: Service, rpc: Rpc) -> None:
    """The current status, then each change; an unknown service may still appear."""
    watching = rpc.health.watch(health_pb2.HealthCheckRequest(service=WIRE_NAME))
    assert next(watching).status == SERVING
    watching.cancel()
    unknown = rpc.health.watch(health_pb2.HealthCheckRequest(service="none"))
    assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    unknown.cancel()


def test_reflection_lists_every_service(service: Service, rpc: Rpc) -> None:
    """All services are listed, V2 under the protocol's names; requests can be built from them."""
    database = ProtoReflectionDescriptorDatabase(rpc.channel)
    offered = set(database.get_services())
    assert offered == {
        *SERVICES[1:],
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    pool = DescriptorPool(database)
    for name in offered:
        description = pool.FindServiceByName(name)
        assert len(description.methods) > 0
    infer = pool.FindServiceByName(WIRE_NAME).methods_by_name["ModelInfer"]
    assert infer.input_type.full_name == "inference.ModelInferRequest"
    nested = infer.input_type.fields_by_name["inputs"].message_type
    assert nested.full_name == "inference.ModelInferRequest.InferInputTensor"


def test_metrics_count_requests_rows_and_fits(ready: Service, rpc: Rpc) -> None:
    method = "/recalib.v1.Calibration/Calibrate"

    def counted(code: str) -> tuple[float, float]:
        text = ready.client.get("/metrics").text
        rows = sample(text, "recalib_calibrated_rows_total", model="digits", calibrator="1")
        return rows, sample(text, "recalib_grpc_requests_total", method=method, code=code)

    rows, requests = counted("OK")
    _, refusals = counted("NOT_FOUND")
    rpc.calibration.calibrate(question(np.zeros((7, 4))))
    refused(
        grpc.StatusCode.NOT_FOUND, rpc.calibration.calibrate, question([[0.0]], model="evil-name")
    )
    assert counted("OK") == (rows + 7, requests + 1)
    assert counted("NOT_FOUND")[1] == refusals + 1
    text = ready.client.get("/metrics").text
    assert sample(text, "recalib_grpc_request_duration_seconds_count", method=method) >= 1
    assert "evil" not in text


def _temporary_files(folder: Path) -> list[Path]:
    return list((folder / "blobs").rglob("temporary/*"))


def test_interrupted_upload_leaves_no_file(service: Service, rpc: Rpc, data, tmp_path) -> None:
    service.model()
    body, is_over = npz(*data), threading.Event()

    def half() -> Iterator[pb.UploadDatasetRequest]:
        yield from list(pieces(body, 1000))[:5]
        is_over.wait(PATIENCE_SECONDS)

    call = rpc.channel.stream_unary(
        "/recalib.v1.Datasets/UploadDataset",
        request_serializer=pb.UploadDatasetRequest.SerializeToString,
        response_deserializer=pb.UploadDatasetResponse.FromString,
    ).future(half())
    until(lambda: _temporary_files(tmp_path), "a part of the upload")
    call.cancel()
    until(lambda: not _temporary_files(tmp_path), "the file to go")
    is_over.set()
    assert len(rpc.datasets.list_datasets(pb.ListDatasetsRequest(model="digits")).items) == 0
