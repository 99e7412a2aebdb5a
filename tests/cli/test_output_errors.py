"""Output that cannot be written: a full disk and a full standard output."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Cli
from tests.end_to_end.programs import Programs, recalib_command


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate file system with no free space."""
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
def test_full_disk_is_reported(cli: Cli, full_disk: Path, command: str) -> None:
    """Exit code 2, one line with path and reason, and no output file."""
    cli.fitted()
    result = cli(*command.format(full_disk).split())
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1), result
    assert result.err.startswith(f"error: output: found {full_disk}/")
    assert "(No space left on device); accepted: " in result.err
    assert [path.name for path in full_disk.iterdir()] == ["filler"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], pytest.param(["--json"], marks=pytest.mark.slow)])
def test_full_standard_output_is_reported(cli: Cli, programs: Programs, more: list[str]) -> None:
    """Results that were never written are no success."""
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            recalib_command("evaluate", "val.npz", *more),
            env=programs.environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr.count("\n") == 1, process.stderr
    assert process.stderr.startswith("error: [Errno 28] No space left on device")
