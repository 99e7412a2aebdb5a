"""A SQLite file with a page of noise: it is read where it can be, named, and not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from recalib.errors import UnavailableError
from recalib.registry import Registry
from recalib.settings import Settings
from service.app import create_app
from tests.registry.scenes import a_model, damage_table

pytestmark = pytest.mark.sqlite_only


@pytest.fixture
def damaged(registry: Registry, tmp_path: Path) -> Path:
    """A database with the model `resnet`, whose table of webhooks cannot be read."""
    a_model(registry)
    registry.close()
    damage_table(tmp_path / "recalib.db", "webhooks")
    return tmp_path / "recalib.db"


def test_malformed_file_refuses_writes_from_the_first_on(damaged: Path) -> None:
    registry = Registry(f"sqlite:///{damaged}", "memory://")
    content = damaged.read_bytes()
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"is malformed .* restore a backup"):
            a_model(registry, "other")
    with pytest.raises(UnavailableError, match="malformed"):
        registry.check()
    with registry.reading() as tx:
        assert tx.models.get("resnet").classes == 2
    registry.close()
    assert damaged.read_bytes() == content


def test_damage_that_a_read_meets_refuses_writes(registry: Registry, tmp_path: Path) -> None:
    """It may arise after the verification at the start."""
    a_model(registry)
    damage_table(tmp_path / "recalib.db", "webhooks")
    registry._engine.dispose()  # SQLite has no pages in memory then
    with pytest.raises(UnavailableError, match="malformed"), registry.reading() as tx:
        tx.connection.exec_driver_sql("SELECT * FROM webhooks").all()
    with pytest.raises(UnavailableError, match="restore a backup"):
        a_model(registry, "other")


def test_server_reads_on_and_names_the_damage(damaged: Path, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url=f"sqlite:///{damaged}", grpc_port=-1)
    with TestClient(create_app(settings)) as client:
        assert client.get("/v1/models/resnet").status_code == 200
        answer: Any = client.post("/v1/models", json={"name": "new", "classes": 3})
        assert (answer.status_code, "malformed" in answer.json()["detail"]) == (503, True)
        ready = client.get("/readyz")
        assert (ready.status_code, "malformed" in ready.json()["detail"]) == (503, True)
