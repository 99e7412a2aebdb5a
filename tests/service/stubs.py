"""gRPC client helpers: stubs from descriptors, and error details."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from grpc_status import rpc_status

from service.grpc.generated.recalib.v1 import recalib_pb2
from service.grpc.generated.recalib.v2wire import inference_pb2
from service.grpc.rpc import method_name
from service.inference.rpc import WIRE_NAME

__all__ = ["Rpc", "Stub", "refused", "violations"]

PATIENCE_SECONDS = 120
SERVICES = recalib_pb2.DESCRIPTOR.services_by_name
V2 = inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
REFLECTION = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]


class Stub:
    """A method for each RPC of a service, with a default deadline."""

    def __init__(self, channel: Any, service: Any, name: str | None = None) -> None:
        for method in service.methods:
            kind = {
                (False, False): channel.unary_unary,
                (False, True): channel.unary_stream,
                (True, False): channel.stream_unary,
                (True, True): channel.stream_stream,
            }[method.client_streaming, method.server_streaming]
            call = kind(
                f"/{name or service.full_name}/{method.name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            setattr(self, method_name(method.name), _patient(call))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)


def _patient(call: Any) -> Callable[..., Any]:
    def ask(request: Any, timeout: float = PATIENCE_SECONDS, **more: Any) -> Any:
        return call(request, timeout=timeout, **more)

    return ask


class Rpc:
    """All services at one address; answers can have any size."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", -1)]
        )
        self.audit = Stub(self.channel, SERVICES["Audit"])
        self.models = Stub(self.channel, SERVICES["Models"])
        self.monitoring = Stub(self.channel, SERVICES["Monitoring"])
        self.datasets = Stub(self.channel, SERVICES["Datasets"])
        self.calibrators = Stub(self.channel, SERVICES["Calibrators"])
        self.batches = Stub(self.channel, SERVICES["Batches"])
        self.evaluations = Stub(self.channel, SERVICES["Evaluations"])
        self.training_runs = Stub(self.channel, SERVICES["TrainingRuns"])
        self.calibration = Stub(self.channel, SERVICES["Calibration"])
        self.labels = Stub(self.channel, SERVICES["Labels"])
        self.jobs = Stub(self.channel, SERVICES["Jobs"])
        self.events = Stub(self.channel, SERVICES["Events"])
        self.webhooks = Stub(self.channel, SERVICES["Webhooks"])
        self.v2 = Stub(self.channel, V2, WIRE_NAME)
        self.health = Stub(self.channel, HEALTH)
        self.reflection = Stub(self.channel, REFLECTION)

    def __enter__(self) -> Rpc:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()


def refused(code: grpc.StatusCode, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """Make a call that must end with `code`; return the error."""
    with pytest.raises(grpc.RpcError) as excinfo:
        _all_of(call(*arguments, **more))
    assert excinfo.value.code() is code, excinfo.value
    return excinfo.value


def _all_of(answer: Any) -> None:
    if not isinstance(answer, Message):  # a stream
        list(answer)


def violations(error: Any) -> dict[str, str]:
    """Return the fields of the error details with their descriptions."""
    status = rpc_status.from_call(error)
    assert status is not None
    assert status.message == error.details()
    details = error_details_pb2.BadRequest()
    assert status.details[0].Unpack(details)
    return {violation.field: violation.description for violation in details.field_violations}
