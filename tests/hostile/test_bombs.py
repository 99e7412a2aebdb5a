"""Small files that claim large resources are rejected or read within limits."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import pytest

from tests.hostile.bombs import BOMBS, MAX_MIB, MAX_SIZE_FACTOR

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

#: Valid files, which are read.
_HONEST = {"npz: 40 MB of zeros", "calibrate: npy of true rows"}


#: Files that take half a second or more to make.
_SLOW = {
    "npz: 40 MB of zeros",
    "npz: unpacks to more",
    "arrow: a field a million times",
    "arrow: columns that share bytes",
    "v2: gzip",
}


@functools.cache
def results(are_slow: bool) -> dict[str, dict[str, Any]]:
    """Return the results of one process with memory and time limits that reads these files."""
    names = [name for name in BOMBS if (name in _SLOW) == are_slow]
    process = subprocess.run(
        [sys.executable, "-m", "tests.hostile.bombs", *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in _SLOW else []) for name in BOMBS]
)
def test_bombs_stay_within_limits(name: str) -> None:
    """Each file needs at most 96 MiB plus 16 times its size."""
    result = results(name in _SLOW)[name]
    assert result["mib"] <= MAX_MIB + MAX_SIZE_FACTOR * result["bytes"] / (1 << 20), result
    assert (result["message"] is None) == (name in _HONEST), result
    assert result["message"] is None or len(result["message"]) < 1000
