"""Memory of a real server that gets large gRPC messages from callers without permission."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.end_to_end.programs import PATIENCE_SECONDS, Programs, Server, recalib_command

pytestmark = pytest.mark.slow

log = logging.getLogger(__name__)

_MESSAGES, _MIB = 10, 60
_MAX_GROWTH_BYTES = 100 * 2**20
#: Calls that arrive during the messages; a generous bound, for slow and busy machines.
_MAX_SECONDS = 10.0

GET_MODEL = "/recalib.v1.Models/GetModel"
UPLOAD = "/recalib.v1.Datasets/UploadDataset"
CALIBRATE = "/recalib.v1.Calibration/Calibrate"
INFER = "/inference.GRPCInferenceService/ModelInfer"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
HEALTH = "/grpc.health.v1.Health/Check"
LIVE = "/inference.GRPCInferenceService/ServerLive"


class Keys(NamedTuple):
    """The secrets of two API keys."""

    admin: str
    metrics: str


class Guarded(NamedTuple):
    """A running server that requires keys, with a model."""

    server: Server
    keys: Keys

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """Metadata of a call with the key of scope `admin`."""
        return [("authorization", f"Bearer {self.keys.admin}")]

    def memory(self, field: str) -> int:
        """Return a field of the process's status in bytes: `VmRSS`, or `VmHWM`, the peak."""
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024

    def reset_peak(self) -> None:
        """Set `VmHWM` to the memory that the process has now."""
        Path(f"/proc/{self.server.pid}/clear_refs").write_text("5")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Keys]:
    """A home to copy, and its keys: a command for each key takes as long as a server's start."""
    folder = tmp_path_factory.mktemp("home")
    return folder, Keys(*(_create_key(folder, scope) for scope in Keys._fields))


@pytest.fixture
def guarded(home: tuple[Path, Keys]) -> Iterator[Guarded]:
    """A new process: memory that an earlier attack left would hide that of the next."""
    template, keys = home
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(Path(folder))
        shutil.copytree(template, programs.home)
        try:
            with programs.serve("--require-keys", "--job-workers", 0) as server:
                server.client.headers["Authorization"] = f"Bearer {keys.admin}"
                server.model()
                yield Guarded(server, keys)
        finally:
            programs.clean_up()


def _create_key(home: Path, scope: str) -> str:
    command = recalib_command("keys", "create", scope, "--scope", scope, "--home", home)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _seconds_of_calls(guarded: Guarded, attack: subprocess.Popen[str]) -> list[float]:
    """Call GetModel until the other process has ended; return how long each call took."""
    request = pb.GetModelRequest(model="digits")
    seconds = []
    with grpc.insecure_channel(guarded.server.grpc_url) as channel:
        call = channel.unary_unary(GET_MODEL, pb.GetModelRequest.SerializeToString)
        while attack.poll() is None:
            started = time.perf_counter()
            call(request, metadata=guarded.metadata, timeout=PATIENCE_SECONDS)
            seconds.append(time.perf_counter() - started)
            time.sleep(0.005)
    return seconds


def _check_growth(
    guarded: Guarded,
    method: str,
    key: str | None,
    status: str,
    mib: int = _MIB,
    max_growth: int = _MAX_GROWTH_BYTES,
    max_rest: int = _MAX_GROWTH_BYTES // 2,
) -> None:
    """Send large messages; check status and memory, and that calls of others are answered."""
    before = guarded.memory("VmRSS")
    guarded.reset_peak()
    arguments = [guarded.server.grpc_url, method, str(_MESSAGES), str(mib)]
    command = [sys.executable, "-m", "tests.end_to_end.large_messages", *arguments]
    with subprocess.Popen(
        [*command, *([] if key is None else [key])], stdout=subprocess.PIPE, text=True
    ) as attack:
        seconds = _seconds_of_calls(guarded, attack)
        output, _ = attack.communicate()
    assert json.loads(output) == {status: _MESSAGES}
    growth, rest = guarded.memory("VmHWM") - before, guarded.memory("VmRSS") - before
    p99 = float(np.quantile(seconds, 0.99))
    log.info(
        "%s %s: peak +%.0f MiB, afterwards +%.0f MiB, p99 of %d other calls %.0f ms",
        method,
        status,
        growth / 2**20,
        rest / 2**20,
        len(seconds),
        p99 * 1e3,
    )
    assert growth < max_growth
    assert rest < max_rest
    assert p99 < _MAX_SECONDS


def test_large_message_without_a_key_takes_no_memory(guarded: Guarded) -> None:
    _check_growth(guarded, GET_MODEL, None, "UNAUTHENTICATED")


def test_large_message_with_another_scope_takes_no_memory(guarded: Guarded) -> None:
    _check_growth(guarded, CALIBRATE, guarded.keys.metrics, "PERMISSION_DENIED")


def test_message_over_the_limit_takes_no_memory(guarded: Guarded) -> None:
    """Of a caller with the right scope too: gRPC refuses it when its length is known."""
    _check_growth(guarded, CALIBRATE, guarded.keys.admin, "RESOURCE_EXHAUSTED")


def test_messages_at_the_limit_take_bounded_memory(guarded: Guarded) -> None:
    """Of a caller with the right scope: all are received at once, and malloc keeps part of them."""
    most = 3 * _MESSAGES * 15 * 2**20
    _check_growth(guarded, CALIBRATE, guarded.keys.admin, "RESOURCE_EXHAUSTED", 15, most, most)
    _check_growth(guarded, GET_MODEL, guarded.keys.admin, "RESOURCE_EXHAUSTED", 15, most, most)


@pytest.mark.slow
def test_large_messages_to_all_kinds_of_rpcs_take_no_memory(guarded: Guarded) -> None:
    """Unary RPCs, streams, the Open Inference Protocol, reflection, and probes without a key."""
    for method in (UPLOAD, CALIBRATE, INFER, REFLECTION):
        _check_growth(guarded, method, None, "UNAUTHENTICATED")
    for method in (UPLOAD, GET_MODEL, INFER):
        _check_growth(guarded, method, guarded.keys.metrics, "PERMISSION_DENIED")
    for method in (HEALTH, LIVE):
        _check_growth(guarded, method, None, "OK")
        _check_growth(guarded, method, guarded.keys.metrics, "OK")
