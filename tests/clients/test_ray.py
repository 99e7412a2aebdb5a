"""A cluster of Ray as an executor: the results of this process, also after workers are killed.

Ray is in an environment without its requirements (`make clients`), which the development
environment has; the script runs with both.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import recalib
import recalib.scale
from recalib.scale import row_sample
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.fitting.conftest import draw

__all__ = ["cli"]

_ROOT = Path(__file__).resolve().parents[2]
#: Many times what a quiet machine needs for all, and for the end.
_PATIENCE_SECONDS, _END_SECONDS = 900.0, 100.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_cluster_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts once, which takes a minute on a busy machine."""
    packages = _packages()
    logits, labels = _write_parts(tmp_path / "parts", rows=400)
    np.savez(tmp_path / "invalid.npz", logits=logits, labels=labels + 4)
    results = _run(packages, tmp_path)
    assert results["count"] == 2
    assert results["killed"] == 1
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 100)
    expected = recalib.scale.fit(tmp_path / "parts", "vector")
    for name, value in expected.parameters.items():
        assert results["parameters"][name] == value.tolist()
    metrics = recalib.scale.evaluate(tmp_path / "parts").finish()
    assert results["metrics"] == {name: estimate.value for name, estimate in metrics.items()}
    assert results["progress"] == list(range(1, 9))
    assert results["repeated"] == [7, 7, 7]
    assert results["ended"].startswith("UnavailableError: workers of Ray end while")
    assert results["error"].startswith(f"InputError: {tmp_path}/invalid.npz: labels")
    assert results["after_cancel"] == [1, 2]
    assert (tmp_path / "absent.interrupted").exists()


#: Its arguments are a folder of Ray and one of data.
_COMMANDS = """
set -e
ip link set lo up
export PYTHONPATH="$RAY_PACKAGES:$PWD" RAY_USAGE_STATS_ENABLED=0
# Ray gives the server of a client 30 s, which a busy machine may exceed.
export RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S=200
"$0" -m ray.scripts.scripts start --head --num-cpus=2 --include-dashboard=false \\
    --ray-client-server-port=10001 --object-store-memory=100000000 --temp-dir="$1/ray" >&2
# The first connection starts a process, which may exceed Ray's own limits on a busy machine.
for attempt in 1 2 3; do
    "$0" -c 'import ray; ray.init("ray://127.0.0.1:10001")' >&2 && break
done
for command in "fit --map vector --no-metrics --output $2/vector.calib" evaluate; do
    "$0" -m recalib $command --json --cluster ray://127.0.0.1:10001 "$2/parts"
done
"""


def test_cluster_of_ray_that_runs(tmp_path: Path, cli: Cli) -> None:
    """`ray://` has the results of this process.

    Ray listens on every address of the machine, and runs the code of anyone who can reach it. Here
    it has a network of its own with only the loopback, and ends with the first process of its
    namespace.
    """
    packages = _packages()
    isolated = ["unshare", "-rn", "--pid", "--fork", "--kill-child", "--mount-proc"]
    isolated[0] = shutil.which("unshare") or pytest.skip("no unshare (util-linux)")
    if subprocess.run([*isolated, "ip", "link", "set", "lo", "up"], check=False).returncode:
        pytest.skip("no network namespaces, or no ip (iproute2)")
    # More rows than the sample of a fit has: the workers compute its sums.
    _write_parts(tmp_path / "parts", rows=24_000)
    # The paths of Ray's sockets have at most 107 characters: pytest's folder is too long.
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        run = subprocess.run(
            [*isolated, "sh", "-c", _COMMANDS, sys.executable, folder, str(tmp_path)],
            cwd=_ROOT,
            env=os.environ | {"RAY_PACKAGES": str(packages), "HOME": folder},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-4000:]
    results = run.stdout[run.stdout.rindex("\n{") :]
    assert json.loads(results) == cli("evaluate", tmp_path / "parts", "--json").json
    calibrator = recalib.load(tmp_path / "vector.calib")
    expected = recalib.scale.fit(tmp_path / "parts", "vector")
    assert calibrator.parameters.keys() == expected.parameters.keys()
    for name, value in expected.parameters.items():
        np.testing.assert_array_equal(calibrator.parameters[name], value)


def _packages() -> Path:
    packages = list((_ROOT / ".venv-clients" / "ray").glob("lib/python*/site-packages"))
    if not packages:
        assert "clients" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip("no environment of Ray (make clients)")
    return packages[0]


def _write_parts(folder: Path, rows: int) -> tuple[Any, Any]:
    """Write logits of 4 classes, with labels, in 8 files; return all of them."""
    logits, labels = draw(rows, 4, 3.0)
    folder.mkdir()
    for part in range(8):
        index = slice(part * rows // 8, (part + 1) * rows // 8)
        np.savez(folder / f"{part}.npz", logits=logits[index], labels=labels[index])
    return logits, labels


def _run(packages: Path, folder: Path) -> dict[str, Any]:
    """Run the script until it has written its results, then interrupt it."""
    variables = {"PYTHONPATH": str(packages), "HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.with_ray_cluster", str(folder)],
            cwd=_ROOT,
            env=os.environ | variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    programs = [psutil.Process(process.pid)]
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (folder / "results.json").exists() and process.poll() is None:
            assert time.monotonic() < deadline, (folder / "output").read_text()[-4000:]
            time.sleep(0.2)
        assert process.poll() is None, (folder / "output").read_text()[-4000:]
        programs += programs[0].children(recursive=True)
        assert len(programs) > 2
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_END_SECONDS)
        assert process.returncode != 0
        assert not psutil.wait_procs(programs, timeout=_END_SECONDS)[1]
    finally:
        if process.poll() is None:
            programs = [*programs[0].children(recursive=True), programs[0]]
        for program in programs:
            if program.is_running():
                program.kill()
        process.wait(_END_SECONDS)
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results
