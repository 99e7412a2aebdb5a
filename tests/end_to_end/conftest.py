"""Programs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.programs import Programs


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for bytecode, one for all workers of pytest-xdist."""
    return tmp_path_factory.getbasetemp().parent / "bytecode"


@pytest.fixture
def programs(tmp_path: Path, compiled: Path) -> Iterator[Programs]:
    """Starts programs on a home of their own; none of them outlives the test."""
    programs = Programs(tmp_path, compiled)
    yield programs
    programs.clean_up()
