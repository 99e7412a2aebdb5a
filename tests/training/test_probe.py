"""The container health check of the worker: whether the queue is reachable."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recalib.registry import Registry
from training.probe import main


def test_reachable_queue_is_healthy(
    database_url: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALIB_DATABASE_URL", database_url)
    assert main() == 0


def test_database_without_schema_is_unhealthy(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check does not create a missing SQLite file."""
    monkeypatch.setenv("RECALIB_DATABASE_URL", empty_database_url)
    assert main() == 1
    output = capsys.readouterr().err
    assert output.startswith("not ready: ")
    assert "there is no /" in output or "schema is at nothing" in output
    assert not Path(empty_database_url.removeprefix("sqlite:///")).is_file()


def test_unreachable_database_is_unhealthy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECALIB_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert main() == 1
    assert "not ready" in capsys.readouterr().err


@pytest.mark.slow
def test_probe_does_not_import_heavy_packages() -> None:
    """The probe runs every few seconds beside the worker."""
    look = "import sys, training.probe; print(sorted({'torch', 's3fs'} & set(sys.modules)))"
    process = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True
    )
    assert process.stdout == "[]\n"
