"""`age`, which encrypts backups, for the tests that need it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["age", "age_program"]


def age_program(name: str = "age") -> str:
    """Return the path of `age` or `age-keygen`, or skip with the reason."""
    program = shutil.which(name)
    if program is None:
        assert "age" not in os.environ.get("RECALIB_TESTS_REQUIRE", "").split(",")
        pytest.skip("no age (Debian package age)")
    return program


def age(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run `age ARGUMENTS`."""
    return subprocess.run([age_program(), *arguments], capture_output=True, check=False)
