"""`recalib prepare`: creates schema and blob store, in both databases, repeatably."""

from __future__ import annotations

from pathlib import Path

import pytest

from recalib.registry import Registry, migrate
from tests.cli.running import Cli


def test_prepare_is_repeatable(
    cli: Cli, empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deployments run it again at every start."""
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


def test_prepare_errors_are_one_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RECALIB_BLOB_URL", (tmp_path / "file" / "blobs").as_uri())
    result = cli("prepare", "--home", str(tmp_path / "home"))
    assert result.status == 2
    assert "blob store" in result.err
    assert len(result.err.strip().splitlines()) == 1
