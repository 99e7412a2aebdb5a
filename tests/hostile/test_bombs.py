"""Small files that ask for much are refused, or read, for what small files may cost."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.hostile.bombs import BOMBS, MOST_MIB, MOST_TIMES

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

#: They are no lies, and are read.
_HONEST = {"npz: 40 MB of zeros", "calibrate: npy of true rows"}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """What one process, with limits on its memory and time, made of all of them."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.bombs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["name"]: one for one in lines}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str, found: dict[str, dict[str, Any]]) -> None:
    """At most 96 MiB and 16 times its bytes, however much it claims."""
    one = found[name]
    assert one["mib"] <= MOST_MIB + MOST_TIMES * one["bytes"] / (1 << 20), one
    assert (one["said"] is None) == (name in _HONEST), one
    assert one["said"] is None or len(one["said"]) < 1000
