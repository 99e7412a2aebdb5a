"""The gRPC server of one server process, on the event loop that also serves REST.

All processes listen on the same port; the kernel distributes the connections.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2

from recalib.settings import Settings
from service.batches.rpc import create_batch
from service.datasets.rpc import upload_dataset
from service.events.rpc import stream_events
from service.grpc.bridge import bridged
from service.grpc.generated.recalib.v1 import recalib_pb2
from service.grpc.generated.recalib.v2wire import inference_pb2
from service.grpc.reflection import REFLECTION, Reflection
from service.grpc.rpc import handler_of, method_name
from service.health.rpc import Health
from service.inference import rpc as inference_rpc
from service.labels.rpc import add_labels, add_observations
from service.monitoring.rpc import create_replay
from service.operations import OPERATIONS
from service.predict.rpc import calibrate, calibrate_stream
from service.state import State

log = logging.getLogger(__name__)

_MAX_CONNECTIONS = 1000
#: RPCs that are no plain operations: uploads, streams, large messages, and V2.
_OWN = (
    add_labels, add_observations, calibrate, calibrate_stream, create_batch, create_replay,
    stream_events, upload_dataset, inference_rpc.model_infer, inference_rpc.model_metadata,
    inference_rpc.model_ready, inference_rpc.server_live, inference_rpc.server_metadata,
    inference_rpc.server_ready,
)  # fmt: skip


class RpcServer:
    """Answers RPCs between `start` and `stop`.

    Parameters
    ----------
    grace_seconds: how long running RPCs may take after `drain`; later they are cancelled.
    """

    def __init__(self, state: State, grace_seconds: float) -> None:
        services = list(recalib_pb2.DESCRIPTOR.services_by_name.values())
        own: dict[str, Callable[..., Any]] = {
            method.__name__: partial(method, state) for method in _OWN
        }
        inference = inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        health = health_pb2.DESCRIPTOR.services_by_name["Health"]
        self._health = Health(
            state, [inference_rpc.WIRE_NAME, *(service.full_name for service in services)]
        )
        self._grace_seconds = grace_seconds
        self._credentials = _credentials(state.settings)
        self._address = _address(state.settings.host, state.settings.grpc_port)
        self._stopping: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(options=_options(state.settings))
        reflection = Reflection([health, *services], (inference, inference_rpc.WIRE_NAME))
        of_health = (self._health.check, self._health.list, self._health.watch)
        for method in (*of_health, reflection.server_reflection_info):
            own[method.__name__] = method

        def method_of(method: MethodDescriptor) -> Callable[..., Any]:
            name = method_name(method.name)
            return own.get(name) or bridged(method, OPERATIONS[name].endpoint, state)

        handlers = [handler_of(item, method_of, state) for item in (*services, health, REFLECTION)]
        handlers.append(handler_of(inference, method_of, state, inference_rpc.WIRE_NAME))
        self._server.add_generic_rpc_handlers(tuple(handlers))

    async def start(self) -> int:
        """Listen and return the port; raise `RuntimeError` if it is in use."""
        if self._credentials is None:
            port = self._server.add_insecure_port(self._address)
        else:
            port = self._server.add_secure_port(self._address, self._credentials)
        await self._server.start()
        return port

    def drain(self) -> None:
        """Refuse new RPCs and let running ones finish; return immediately."""
        if self._stopping is None:
            self._health.drain()
            self._stopping = asyncio.ensure_future(self._server.stop(self._grace_seconds))

    async def stop(self) -> None:
        """Drain, and wait until all RPCs have ended."""
        self.drain()
        if self._stopping is not None:
            await self._stopping


def _credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """Return the TLS credentials, or None if TLS is not configured."""
    if not settings.tls_certificate:
        return None
    key, chain = Path(settings.tls_key).read_bytes(), Path(settings.tls_certificate).read_bytes()
    return grpc.ssl_server_credentials([(key, chain)])


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        # gRPC's default is 4 MB.
        (
            "grpc.max_receive_message_length",
            min(settings.max_message_bytes, settings.max_body_bytes),
        ),
        # No limit: responses are about as large as the accepted requests.
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 1),
        ("grpc.max_allowed_incoming_connections", _max_connections()),
        # RPCs of one connection; a client makes further ones wait. gRPC sets no limit.
        ("grpc.max_concurrent_streams", 100),
        # A client has to send its HTTP/2 settings, after TLS. gRPC waits for two minutes.
        ("grpc.server_handshake_timeout_ms", 10_000),
        # Close connections without RPCs; clients connect again for the next one.
        ("grpc.max_connection_idle_ms", 120_000),
        # Detect connections whose client has vanished.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        # Clients behind load balancers ping idle connections; by default, gRPC closes connections
        # that ping more often than every five minutes.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]


def _max_connections() -> int:
    """Return the maximum of connections: REST, files and the registry need descriptors too."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(_MAX_CONNECTIONS, descriptors // 4)
