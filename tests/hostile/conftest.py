"""Programs with a separate home folder, and two servers that tests of limits share."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.end_to_end.conftest import programs
from tests.end_to_end.programs import Programs, Server, recalib_command
from tests.hostile.clients import RECEIVE_SECONDS

__all__ = ["programs"]


@contextlib.contextmanager
def serve(programs: Programs, *options: str, **settings: Any) -> Iterator[Server]:
    """Run a server without gRPC and workers; it must stop well."""
    settings = {"receive_seconds": RECEIVE_SECONDS, "grpc_port": -1, **settings}
    with programs.serve("--job-workers", 0, *options, **settings) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.log()


@pytest.fixture(scope="package")
def shared_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Starts programs that tests of this folder share."""
    programs = Programs(tmp_path_factory.mktemp("hostile"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="package")
def server(shared_programs: Programs) -> Iterator[Server]:
    """A server without keys, with a model."""
    with serve(shared_programs) as server:
        server.model()
        yield server


@pytest.fixture(scope="package")
def key(shared_programs: Programs, server: Server) -> str:
    """A key with all rights."""
    command = recalib_command("keys", "create", "web", "--scope", "admin", "--json")
    environment = shared_programs.environment()
    output = subprocess.run(command, env=environment, capture_output=True, check=True)
    return str(json.loads(output.stdout)["key"])


@pytest.fixture(scope="package")
def locked(shared_programs: Programs, key: str) -> Iterator[Server]:
    """A server that requires keys."""
    with serve(shared_programs, "--require-keys", receive_seconds=5) as server:
        yield server
