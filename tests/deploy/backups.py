"""`age`, which encrypts backups, for the tests that need it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.requirements import program_path

__all__ = ["age", "age_program"]


def age_program(name: str = "age") -> str:
    """Return the path of `age` or `age-keygen`, or skip with the reason."""
    return program_path(name, "age", "age")


def age(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    """Run `age ARGUMENTS`."""
    return subprocess.run([age_program(), *arguments], capture_output=True, check=False)
