"""The record of the failure rules names existing tests."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_DOCUMENT = (_ROOT / "docs" / "decisions" / "0025-failure-rules.md").read_text()


def test_every_row_names_existing_tests() -> None:
    """Files are named by path, or by name if they are in this folder."""
    rows = [line.split("|") for line in _DOCUMENT.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", row[5])
        assert named, row[1]
        for path, test in named:
            file = _ROOT / path if "/" in path else Path(__file__).parent / path
            assert f"def {test}" in file.read_text()


def test_every_fault_test_is_documented() -> None:
    for file in Path(__file__).parent.glob("test_*.py"):
        assert file.name in _DOCUMENT or file == Path(__file__)
