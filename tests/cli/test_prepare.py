"""`recalib prepare`: a schema and a place for blobs, in either database, however often."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalib.registry import Registry, migrate
from tests.cli.running import Cli


def test_a_new_deployment_is_prepared(
    cli: Cli, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again, as it is at every start."""
    blobs = tmp_path / "deep" / "blobs"
    monkeypatch.setenv("RECALIB_BLOB_URL", blobs.as_uri())
    monkeypatch.setenv("RECALIB_HOME", str(tmp_path / "home"))
    at = ("--database-url", empty_database_url)
    expected = {"schema": migrate.head(), "blobs": blobs.as_uri()}
    assert cli("prepare", *at, "--json").json == expected
    assert blobs.is_dir()
    registry = Registry(empty_database_url, blobs.as_uri())
    registry.check()
    registry.close()
    result = cli("prepare", *at)
    assert (result.status, result.err) == (0, "")
    assert "blobs go to" in result.out


def test_what_cannot_be_prepared_is_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RECALIB_BLOB_URL", (tmp_path / "file" / "blobs").as_uri())
    result = cli("prepare", "--home", str(tmp_path / "home"))
    assert result.status == 2
    assert "blob store" in result.err
    assert len(result.err.strip().splitlines()) == 1
