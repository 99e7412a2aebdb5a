"""gRPC of real server processes: a shared port, draining, a port in use."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import grpc
import numpy as np
import psutil
import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.programs import PATIENCE_SECONDS, Programs, Server, paused, until
from tests.fitting.conftest import draw
from tests.service.stubs import Rpc
from tests.service.test_grpc_workflow import array, question

pytestmark = pytest.mark.slow

ROWS = draw(10, 4, 3.0)[0].astype(np.float32)


def with_champion(server: Server) -> None:
    server.model()
    server.upload(*draw(400, 4, 3.0))
    server.finished(server.ask_fit())


def served_by(server: Server) -> set[int]:
    """Return the processes that have accepted gRPC connections."""
    port = int(server.grpc_url.rpartition(":")[2])
    addresses = set()
    for process in psutil.Process(server.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_ESTABLISHED and connection.laddr.port == port:
                    addresses.add(process.pid)
    return addresses


def test_several_processes_share_the_port(programs: Programs) -> None:
    """Both processes accept connections, and a promotion over gRPC reaches both."""
    with programs.serve("--workers", 2) as server:
        with_champion(server)
        expected = server.calibrate(ROWS)["probabilities"]
        until(lambda: len(server.listening(server.grpc_url)) == 2, "both processes to listen")
        with contextlib.ExitStack() as stack:
            # Channels with equal options share a connection unless each has its own pool.
            own = ("grpc.use_local_subchannel_pool", 1)
            channels = [
                stack.enter_context(grpc.insecure_channel(server.grpc_url, options=[own]))
                for _ in range(24)
            ]
            calls = [
                channel.unary_unary(
                    "/recalib.v1.Calibration/Calibrate",
                    request_serializer=pb.CalibrateRequest.SerializeToString,
                    response_deserializer=pb.CalibrateResponse.FromString,
                )
                for channel in channels
            ]
            for call in calls:
                np.testing.assert_allclose(array(call(question(ROWS))), expected, rtol=1e-5)
            assert served_by(server) == server.listening(server.grpc_url)
            server.finished(server.ask_fit(map="identity", promote=False))
            rpc = stack.enter_context(Rpc(server.grpc_url))
            change = pb.SetAliasRequest(model="digits", alias="champion", version=2)
            rpc.calibrators.set_alias(change)
            until(
                lambda: {call(question(ROWS)).calibrator.version for call in calls} == {2},
                "the promotion to reach both processes",
            )
        assert server.stop() == 0
    until(lambda: not programs.alive(), "all processes to end")


@pytest.fixture(
    params=["by another program", "by a server of ours", "by a server of ours that starts"]
)
def used_port(request: pytest.FixtureRequest, programs: Programs) -> Iterator[int]:
    """A port in use; SO_REUSEPORT would otherwise share it."""
    if request.param == "by another program":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener.getsockname()[1]
    elif request.param == "by a server of ours":
        with programs.serve("--job-workers", 0) as server:
            yield int(server.grpc_url.rpartition(":")[2])
    else:
        process = programs.start("serve", "--port", 0, "--job-workers", 0, "--json")
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        with paused(psutil.Process(process.pid)):  # long before it listens
            yield int(announced["grpc_url"].rpartition(":")[2])


def test_grpc_port_in_use_is_reported(programs: Programs, used_port: int) -> None:
    """Status 2 and one line, before anything starts."""
    other = programs.folder / "other"
    process = programs.start("serve", "--port", 0, "--grpc-port", used_port, home=other)
    assert process.wait(PATIENCE_SECONDS) == 2
    assert programs.log_of(process) == (
        f"error: grpc_port: found {used_port} (Address already in use); "
        "accepted: a free port, or -1 for no gRPC\n"
    )
    assert not (other / "recalib.db").exists()


def test_server_without_grpc(programs: Programs) -> None:
    """The announcement has no gRPC URL, and no second port is open."""
    with programs.serve("--grpc-port", -1, "--job-workers", 0) as server:
        assert server.grpc_url is None
        own = psutil.Process(server.process.pid)
        listening = [
            connection
            for connection in own.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert len(listening) == 1
