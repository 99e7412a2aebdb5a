"""The examples of a tutorial run with the packages alone that its `pip install` names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.supply.requirements import ROOT

pytestmark = pytest.mark.slow
_PIP = re.compile(r"`pip install ([^`]+)`")
_BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_PROGRAM = """
import sys
from tests.installation.hidden_packages import hide
code, *requirements = sys.argv[1:]
hidden = hide(*requirements)
assert {"pytest", "starlette"} <= hidden
exec(code, {"__name__": "__main__"})
"""


@pytest.mark.parametrize("page", ["network.md", "rare-class.md"])
def test_examples_need_no_other_package(page: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorials" / page).read_text()
    command = _PIP.search(text.replace("\n", " "))
    assert command is not None
    requirements = shlex.split(command[1])
    assert requirements[0].startswith("recalib[")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    process = subprocess.run(
        [sys.executable, "-c", _PROGRAM, "".join(_BLOCK.findall(text)), *requirements],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
