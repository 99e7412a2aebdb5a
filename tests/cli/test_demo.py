"""`recalib demo`: a real server, worker and curl commands."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.end_to_end.programs import Programs, until

#: What `make demo` gives.
_EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_demo(programs: Programs) -> None:
    """One JSON document, with what examples there are; neither a process nor a home is left."""
    process = programs.start("demo", "--json", "--examples", str(_EXAMPLES))
    out, _ = process.communicate()
    assert (process.returncode, programs.log_of(process)) == (0, "")
    answer = json.loads(out)
    before, after = (answer["metrics"][when] for when in ("before", "after"))
    assert after["accuracy"]["value"] == before["accuracy"]["value"] > 0.8
    assert after["nll"]["value"] < before["nll"]["value"]
    assert after["ece"]["value"] < before["ece"]["value"]
    assert answer["fit"]["map"] == "temperature"
    assert {*answer["examples"]} == {"cifar10-resnet8-cross-entropy", "cifar10-resnet8-focal"}
    for name, example in answer["examples"].items():
        with np.load(_EXAMPLES / f"{name}-test.npz") as data:
            right = data["logits"].argmax(axis=1) == data["labels"]
        assert example["before"]["accuracy"]["value"] == pytest.approx(right.mean())
        assert example["after"]["nll"]["value"] < example["before"]["nll"]["value"]
    assert Path(answer["diagram"]).read_bytes().startswith(b"\x89PNG")
    assert programs.alive() == []
    # Other libraries leave temporary files under different names.
    remaining = list(programs.temporary.glob("recalib-*/*"))
    assert remaining == [Path(answer["diagram"])]
    assert not programs.home.exists()


@pytest.mark.slow
def test_demo_keeps_server_running(programs: Programs) -> None:
    """The server goes on, its curl lines and its console work as they are, `kill` ends it all."""
    process = programs.start("demo", "--keep")
    out = process.communicate()[0].decode()
    assert (process.returncode, programs.log_of(process)) == (0, "")
    assert "reliability diagram: " in out
    lines = re.findall(r"^  (curl .*)$", out, re.MULTILINE)
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    calibrate, version, metrics = (_run_command(shlex.split(line)) for line in lines)
    (row,) = json.loads(calibrate)["probabilities"]
    assert sum(row) == pytest.approx(1, abs=1e-5)  # ten numbers of float32
    assert json.loads(version)["card"]["map"] == "temperature"
    assert "recalib_" in metrics
    (url,) = re.findall(r"^  (http://\S+/)$", out, re.MULTILINE)
    page = _run_command(["curl", "-s", "--location", url])
    rows = re.findall(r'/models/(\w+)">\w+</a></th>\s*<td><span class="state (\w+)"', page)
    assert dict(rows) == {
        "defects": "stale", "digits": "unverified", "fraud": "fresh", "species": "fresh",
    }  # fmt: skip

    (pid,) = re.findall(r"Stop it with: kill (\d+)$", out, re.MULTILINE)
    psutil.Process(int(pid)).terminate()
    until(lambda: not programs.alive(), "the server and its worker to end")


def _run_command(command: list[str]) -> str:
    return subprocess.run(
        [*command, "--fail"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
