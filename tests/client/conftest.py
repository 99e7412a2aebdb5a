"""Fixtures: a real server, a faulty server, and both clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from recalib.client import Retries
from tests.client.either import KINDS, Either
from tests.client.flaky import Flaky
from tests.end_to_end.programs import Programs, Server

#: Limits of the real server, small enough for tests to exceed.
MAX_ROWS, MAX_BYTES, MAX_LABELS = 50, 100_000, 7


@pytest.fixture(scope="package")
def shared_programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Starts programs that all tests of this folder share."""
    programs = Programs(tmp_path_factory.mktemp("client"))
    yield programs
    programs.clean_up()


@pytest.fixture(scope="package")
def server(shared_programs: Programs) -> Iterator[Server]:
    """A server with a worker and small limits.

    It ends with this folder's tests: its worker looks for jobs five times a second.
    """
    limits = {
        "max_rows": MAX_ROWS,
        "max_body_bytes": MAX_BYTES,
        "max_labels": MAX_LABELS,
        "max_upload_bytes": 10**6,
        # Monitoring is off, since the tests create many models.
        "monitor_seconds": 3600,
    }
    with shared_programs.serve(**limits) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of client."""
    result: str = request.param
    return result


@pytest.fixture
def client(kind: str, server: Server) -> Iterator[Either]:
    """A client of the real server."""
    with Either(kind, server.url) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A unique model name."""
    return f"model-{uuid4().hex}"


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    """A server with scripted responses."""
    with Flaky() as flaky:
        yield flaky


@pytest.fixture
def client_of(kind: str) -> Iterator[Callable[..., Either]]:
    """Return a factory of clients with short pauses."""
    clients: list[Either] = []

    def make(url: str, attempts: int = 4, first_pause: float = 0.01, **more: Any) -> Either:
        retries = Retries(attempts, first_pause)
        clients.append(Either(kind, url, retries=retries, **more))
        return clients[-1]

    yield make
    for client_ in clients:
        client_.__exit__(None, None, None)
