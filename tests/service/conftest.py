"""A service in this process, on each database; tests run its worker explicitly."""

from __future__ import annotations

import contextlib
import functools
import io
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from starlette.testclient import TestClient

from recalib.registry import Registry
from recalib.settings import Settings
from service.app import create_app
from tests.fitting.conftest import draw
from tests.registry.fixtures import copy_of, empty_database
from tests.service.documented import DocumentedClient, answers
from tests.service.stubs import Rpc
from training.main import HANDLERS
from training.worker import Worker

NPZ = {"Content-Type": "application/x-npz"}
NPY = {"Content-Type": "application/x-npy"}


def npz(logits: NDArray[Any], labels: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, logits=logits, labels=labels)
    return file.getvalue()


def npy(array: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=array.dtype == object)
    return file.getvalue()


class Service:
    """Helper methods for tests of a service."""

    def __init__(self, client: TestClient, registry: Registry) -> None:
        self.client = client
        self.registry = registry
        self.worker = Worker(registry, HANDLERS, name="test")

    def model(self, name: str = "digits", classes: int | list[str] = 4, **settings: Any) -> None:
        body = {"name": name, "classes": classes, **settings}
        answer = self.client.post("/v1/models", json=body)
        assert answer.status_code == 201, answer.text

    def upload(
        self, body: bytes, name: str = "validation", model: str = "digits", **more: Any
    ) -> Any:
        return self.client.put(
            f"/v1/models/{model}/datasets/{name}", content=body, headers=NPZ, **more
        )

    def ask_fit(self, model: str = "digits", **options: Any) -> Any:
        options = {"dataset": "validation", **options}
        return self.client.post(f"/v1/models/{model}/calibrators", json=options)

    def work(self) -> None:
        """Run all queued jobs."""
        while self.worker.work_once(threading.Event()):
            pass

    def fitted(self, **options: Any) -> dict[str, Any]:
        """Fit; return the finished job."""
        answer = self.ask_fit(**options)
        assert answer.status_code == 202, answer.text
        self.work()
        job: dict[str, Any] = self.client.get(f"/v1/jobs/{answer.json()['id']}").json()
        return job

    def calibrate(self, logits: Any, model: str = "digits", **query: Any) -> Any:
        rows = logits.tolist() if isinstance(logits, np.ndarray) else logits
        return self.client.post(
            f"/v1/models/{model}/calibrate", json={"logits": rows}, params=query
        )


def _settings(database_url: str, blob_url: str, grpc_port: int) -> Settings:
    """Return settings with small limits, which tests can exceed, and without polling."""
    places = {"database_url": database_url, "blob_url": blob_url, "grpc_port": grpc_port}
    return _small_limits().model_copy(update=places)


@functools.cache
def _small_limits() -> Settings:
    return Settings(
        max_body_bytes=100_000,
        max_upload_bytes=1_000_000,
        max_rows=50,
        refresh_seconds=3600,
        load_seconds=60,  # also on a slow machine
        warm_champions=0,
    )


@pytest.fixture(scope="session")
def ready_sqlite(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    """A folder with the SQLite file and the blobs of a ready service."""
    folder = tmp_path_factory.mktemp("ready-sqlite")
    for url in copy_of(sqlite_template, folder):
        _leave_ready(url, folder)
    return folder


@pytest.fixture(scope="session")
def ready_postgresql(
    tmp_path_factory: pytest.TempPathFactory, postgresql_template: tuple[str, str]
) -> Iterator[tuple[Path, tuple[str, str]]]:
    """The same with PostgreSQL: the server and the name of the database."""
    folder = tmp_path_factory.mktemp("ready-postgresql")
    for url in copy_of(postgresql_template, folder):
        _leave_ready(url, folder)
        yield folder, (postgresql_template[0], url.partition("?")[0].rpartition("/")[2])


def _leave_ready(database_url: str, folder: Path) -> None:
    places = database_url, (folder / "blobs").as_uri()
    registry = Registry(*places)
    with _served(_settings(*places, grpc_port=-1), registry) as service:
        _made_ready(service, _data())
    registry.close()


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A new, migrated database; a copy of a ready service if the test uses `ready`.

    Making a service ready takes longer than most tests and always gives the same result.
    """
    template: Any
    if "ready" not in request.fixturenames:
        template = request.getfixturevalue(f"{request.param}_template")
        is_file = request.param == "sqlite"
        yield from copy_of(template, tmp_path) if is_file else empty_database(*template)
        return
    if request.param == "sqlite":
        folder = request.getfixturevalue("ready_sqlite")
        template = folder / "recalib.db"
    else:
        folder, template = request.getfixturevalue("ready_postgresql")
    shutil.copytree(folder / "blobs", tmp_path / "blobs")
    yield from copy_of(template, tmp_path)


@pytest.fixture
def settings(database_url: str, blob_url: str, request: pytest.FixtureRequest) -> Settings:
    """Settings of the service; gRPC is enabled for tests that use `rpc`."""
    return _settings(database_url, blob_url, 0 if "rpc" in request.fixturenames else -1)


@pytest.fixture
def service(settings: Settings, registry: Registry) -> Iterator[Service]:
    with _served(settings, registry) as service:
        yield service


@contextlib.contextmanager
def _served(settings: Settings, registry: Registry) -> Iterator[Service]:
    app = create_app(settings)
    app.openapi_schema = answers().document
    with DocumentedClient(app, raise_server_exceptions=False) as client:
        yield Service(client, registry)


@pytest.fixture
def rpc(service: Service) -> Iterator[Rpc]:
    """The same service over gRPC."""
    with Rpc(f"127.0.0.1:{service.client.app.state.grpc_port}") as rpc:
        yield rpc


@pytest.fixture
def data() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """600 rows of 4 classes of an overconfident classifier; the true temperature is 3."""
    return _data()


def _data() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    return draw(600, 4, 3.0)


@pytest.fixture
def ready(service: Service) -> Service:
    """A service with a model, its validation data and a champion."""
    return service


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Service]:
    """One ready service for all tests that do not change it, such as tests of rejections.

    SQLite only: these requests are decided before the registry is used.
    """
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(sqlite_template, folder / "recalib.db")
    places = f"sqlite:///{folder / 'recalib.db'}", (folder / "blobs").as_uri()
    registry = Registry(*places)
    with _served(_settings(*places, grpc_port=-1), registry) as service:
        yield _made_ready(service, _data())
    registry.close()


def _made_ready(service: Service, data: tuple[NDArray[Any], NDArray[Any]]) -> Service:
    service.model()
    assert service.upload(npz(*data)).status_code == 201
    assert service.fitted()["result"]["promoted"] is True
    return service
