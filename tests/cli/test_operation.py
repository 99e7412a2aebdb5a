"""What operators run into, with real processes where the process matters."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.cli.running import Cli
from tests.end_to_end.programs import Programs, recalib_command, until


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own without a byte of room."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a file system to fill")
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine mounts no tmpfs, not even for root")
    try:
        _fill(folder / "filler")
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S607


def _fill(path: Path) -> None:
    with contextlib.suppress(OSError), path.open("wb", 0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize(
    "command",
    [
        "fit val.npz -o {}/t.calib",
        "apply t.calib val.npz -o {}/out.npz",
        "export t.calib -o {}/t.onnx",
        "evaluate val.npz --diagram {}/d.json",
    ],
)
def test_a_full_disk(cli: Cli, full_disk: Path, command: str) -> None:
    """Exit code 2, one line that says where and why, and nothing left behind."""
    cli.fitted()
    done = cli(*command.format(full_disk).split())
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1), done
    assert done.err.startswith(f"error: output: found {full_disk}/")
    assert "(No space left on device); accepted: " in done.err
    assert [one.name for one in full_disk.iterdir()] == ["filler"]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_standard_output_that_takes_nothing(cli: Cli, programs: Programs, more: list[str]) -> None:
    """Results that were never written are no success."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            recalib_command("evaluate", "val.npz", *more),
            env=programs.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: [Errno 28] No space left on device")


def test_a_taken_port(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli("serve", "--port", port, "--home", "home")
    assert (done.status, done.out) == (2, "")
    assert (
        done.err == f"error: port: found {port} (Address already in use); accepted: a free port\n"
    )


@pytest.mark.parametrize("name", ["RECALIB_PORT", "RECALIB_LEASE_SECONDS"])
def test_a_wrong_setting(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "soon")
    done = cli("serve")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"error: {name}: found 'soon'; accepted: ")


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_database_that_is_none(programs: Programs, command: str) -> None:
    more = ["--port", 0] if command == "serve" else []
    process = programs.start(command, *more, "--database-url", "oracle://me:secret@host/x")
    assert process.wait() == 2
    assert programs.log_of(process).startswith("error: database_url: found oracle; accepted: ")
    assert programs.log_of(process).count("\n") == 1
    assert "secret" not in programs.log_of(process)


@pytest.mark.slow
def test_demo(programs: Programs, tmp_path: Path) -> None:
    """One JSON document, with what examples there are; neither a process nor a home is left."""
    rng = np.random.default_rng(0)
    for split in ("validation", "test"):
        labels = rng.integers(0, 3, 300)
        sure = 5 * (np.eye(3)[labels] + rng.normal(size=(300, 3)))
        logits = sure.astype(np.float16)
        file = tmp_path / f"sure-{split}.npz"
        np.savez(file, logits=logits, labels=labels.astype(np.uint8))
    process = programs.start("demo", "--json", "--examples", str(tmp_path))
    out, _ = process.communicate()
    assert (process.returncode, programs.log_of(process)) == (0, "")
    answer = json.loads(out)
    before, after = (answer["metrics"][when] for when in ("before", "after"))
    assert after["accuracy"]["value"] == before["accuracy"]["value"] > 0.8
    assert after["nll"]["value"] < before["nll"]["value"]
    assert after["ece"]["value"] < before["ece"]["value"]
    assert answer["fit"]["map"] == "temperature"
    sure = answer["examples"]["sure"]
    right = logits.argmax(axis=1) == labels
    assert sure["before"]["accuracy"]["value"] == pytest.approx(right.mean())
    assert sure["after"]["nll"]["value"] < sure["before"]["nll"]["value"]
    assert Path(answer["diagram"]).read_bytes().startswith(b"\x89PNG")
    assert programs.alive() == []
    # Libraries leave their own traces, whose names are not ours.
    left = list(programs.temporary.glob("recalib-*/*"))
    assert left == [Path(answer["diagram"])]
    assert not programs.home.exists()


@pytest.mark.slow
def test_demo_kept(programs: Programs) -> None:
    """The server goes on, its three curl lines work as they are, and `kill` ends it all."""
    process = programs.start("demo", "--keep")
    out = process.communicate()[0].decode()
    assert (process.returncode, programs.log_of(process)) == (0, "")
    assert "reliability diagram: " in out
    lines = re.findall(r"^  (curl .*)$", out, re.MULTILINE)
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    calibrate, version, metrics = (_said(shlex.split(line)) for line in lines)
    (row,) = json.loads(calibrate)["probabilities"]
    assert sum(row) == pytest.approx(1, abs=1e-5)  # ten numbers of float32
    assert json.loads(version)["card"]["map"] == "temperature"
    assert "recalib_" in metrics

    (pid,) = re.findall(r"stop it with: kill (\d+)$", out, re.MULTILINE)
    psutil.Process(int(pid)).terminate()
    until(lambda: not programs.alive(), "the server and its worker to end")


def _said(command: list[str]) -> str:
    return subprocess.run(
        [*command, "--fail"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
