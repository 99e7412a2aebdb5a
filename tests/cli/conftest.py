"""Fixtures: the command line in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Cli
from tests.end_to_end.conftest import programs

__all__ = ["cli", "programs"]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run commands in an empty working directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Cli(folder, capsys)
