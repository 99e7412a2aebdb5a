"""What some tests need and a machine may lack: programs of the system, environments of clients.

Without it a test is skipped; it fails where the list `RECALIB_TESTS_REQUIRE` names it, as in CI.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

#: The environments of `make clients`.
CLIENTS = Path(__file__).resolve().parents[1] / ".venv-clients"


def missing(name: str, reason: str) -> NoReturn:
    """Skip a test that lacks the requirement `name`."""
    required = os.environ.get("RECALIB_TESTS_REQUIRE", "").split(",")
    assert name not in required, reason
    pytest.skip(reason)


def program_path(program: str, package: str, name: str | None = None) -> str:
    """Return the path of a program of a Debian package; its requirement is `name` or its own."""
    path = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    return path or missing(name or program, f"no {program} (Debian package {package})")


def client_packages(environment: str) -> str:
    """Return the folder of the packages of an environment of `make clients`."""
    for folder in (CLIENTS / environment).glob("lib/python*/site-packages"):
        return str(folder)
    missing("clients", f"no environment of {environment} (make clients)")


def client_python(environment: str) -> str:
    """Return the Python of an environment of `make clients`."""
    client_packages(environment)
    return str(CLIENTS / environment / "bin" / "python")
