"""Programs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.programs import Programs


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs on separate homes, and ends them after the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.clean_up()
