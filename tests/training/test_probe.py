"""The command by which container engines ask whether a worker finds its queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from recalib.registry import Registry
from training.probe import main


def test_a_queue_that_is_there(
    database_url: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALIB_DATABASE_URL", database_url)
    assert main() == 0


def test_a_database_without_our_schema(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or, in SQLite, without a file, which looking does not make."""
    monkeypatch.setenv("RECALIB_DATABASE_URL", empty_database_url)
    assert main() == 1
    told = capsys.readouterr().err
    assert told.startswith("not ready: ")
    assert "there is no /" in told or "schema is at nothing" in told
    assert not Path(empty_database_url.removeprefix("sqlite:///")).is_file()


def test_a_database_that_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECALIB_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert main() == 1
    assert "not ready" in capsys.readouterr().err


def test_it_is_light() -> None:
    """It runs beside the worker, again and again."""
    look = "import sys, training.probe; print(sorted({'torch', 's3fs'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
