"""The recipe of the README with `curl`, on data sets with and without need of a calibrator."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.end_to_end.programs import Programs
from tests.fitting.conftest import draw

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
]
_README = Path(__file__).parents[2] / "README.md"
#: Classes and true temperatures; at 1, the classifier is calibrated.
_CASES = [(classes, t) for classes in (2, 3, 10) for t in (1.0, 0.5, 4.0)]


def _recipe(api: str, name: str, file: Path, classes: int) -> str:
    """Return the commands of the README for another server, model and data set."""
    text = re.search(r"```sh\n(api=.*?)```", _README.read_text(), re.DOTALL)
    assert text is not None
    commands = re.sub(r"^(api|val)=.*$", "", text[1], flags=re.MULTILINE)
    commands = commands.replace("resnet", name).replace('"classes": 10', f'"classes": {classes}')
    row = json.dumps([0.5] * classes)
    commands = re.sub(r"\[\[.*?\]\]", f"[{row}]", commands)
    commands = commands.replace('"map": "auto"', '"map": "temperature"')  # seconds, not minutes
    return f"set -e\napi={api}\nval={file}\n{commands}"


def test_recipe_answers_and_says_what_happened(programs: Programs, tmp_path: Path) -> None:
    """The job says whether the version is better, and why; the answer says what it is."""
    with programs.serve() as server:
        for number, (classes, temperature) in enumerate(_CASES):
            logits, labels = draw(500, classes, temperature, seed=number)
            np.savez(tmp_path / "rows.npz", logits=logits, labels=labels)
            recipe = _recipe(f"{server.url}/v1", f"m{number}", tmp_path / "rows.npz", classes)
            done = subprocess.run(
                ["/bin/sh", "-c", recipe], capture_output=True, text=True, timeout=300, check=True
            )
            output, answer = done.stdout, json.loads(done.stdout.splitlines()[-1])
            promoted = re.search(r'"promoted": ?(true|false)', output)
            assert promoted is not None, output
            assert re.search(r'"reason": ?"temperature (beats|does not beat) identity', output)
            is_served = answer["calibrator"]["version"] == 1
            assert is_served == (promoted[1] == "true")
            assert answer["calibrator"].get("uncalibrated", False) is not is_served
            assert len(answer["probabilities"][0]) == classes
            if temperature > 1:
                assert is_served, output
