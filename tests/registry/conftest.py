"""Registries for the tests of backups."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from recalib.registry import Registry
from tests.registry.fixtures import execute


@pytest.fixture
def backup_path(tmp_path: Path) -> Path:
    return tmp_path / "backup.zip"


def _fresh(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    blobs = (tmp_path / "other-blobs").as_uri()
    if kind == "sqlite":
        registry = Registry(f"sqlite:///{tmp_path / 'other.db'}", blobs)
        yield registry
        registry.close()
        return
    server = request.getfixturevalue("postgresql_url")
    name = f"restored_{uuid4().hex}"
    execute(server, f"CREATE DATABASE {name}")
    registry = Registry(server.replace("/postgres?", f"/{name}?"), blobs)
    yield registry
    registry.close()
    execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def other_target(
    request: pytest.FixtureRequest, tmp_path: Path, database_url: str
) -> Iterator[Registry]:
    """A registry without a schema, in the other kind of database than `registry`."""
    kind = "postgresql" if database_url.startswith("sqlite") else "sqlite"
    yield from _fresh(kind, request, tmp_path)


@pytest.fixture
def sqlite_registry(sqlite_template: Path, tmp_path: Path) -> Iterator[Registry]:
    """A migrated registry in SQLite."""
    shutil.copy(sqlite_template, tmp_path / "here.db")
    registry = Registry(f"sqlite:///{tmp_path / 'here.db'}", (tmp_path / "blobs").as_uri())
    yield registry
    registry.close()


@pytest.fixture
def sqlite_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Registry]:
    """A registry without a schema, in SQLite."""
    yield from _fresh("sqlite", request, tmp_path)
