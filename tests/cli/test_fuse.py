"""`recalib fuse`: what it prints, and how it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import Cli
from tests.onnx_fusion.models import classifier, save
from tests.onnx_fusion.test_fuse import calibrator


def recalib(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run in a separate process: ONNX libraries bypass Python's standard error."""
    command = [sys.executable, "-m", "recalib", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    calibrator().save(tmp_path / "t.calib")
    return save(classifier(), tmp_path), tmp_path / "t.calib", tmp_path / "out.onnx"


@pytest.mark.slow
def test_json_includes_the_verification(files: tuple[Path, Path, Path]) -> None:
    model, calib, out = files
    result = recalib("fuse", model, calib, "-o", out, "--json")
    assert result.returncode == 0, result.stderr
    actual = json.loads(result.stdout)
    assert actual["output"] == str(out)
    assert actual["bytes"] == out.stat().st_size
    assert actual["probabilities"] == "probabilities"
    assert actual["proof"]["rows"] == 80
    assert 0 <= actual["proof"]["largest_difference"] < 1e-5
    assert actual["warnings"] == []


def test_text_output_summarises_the_verification(cli: Cli, files: tuple[Path, Path, Path]) -> None:
    model, calib, out = files
    result = cli("fuse", model, calib, "-o", out, "--shape", "x=2x5")
    assert result.status == 0, result.err
    assert re.search(r"proven on 12 random rows: at most \S+ away", result.out)


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--from", "none"], "from: found 'none'; accepted: the name of one: scores"),
        (["--shape", "x=2x"], "shape: found 'x=2x'"),
        (["--shape", "x"], "shape: found 'x'"),
    ],
)
def test_invalid_options_are_one_line(
    cli: Cli, files: tuple[Path, Path, Path], more: list[str], line: str
) -> None:
    model, calib, out = files
    result = cli("fuse", model, calib, "-o", out, *more)
    assert result.status == 2
    assert line in result.err
    assert len(result.err.splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("out.pb", "accepted: a name that ends in .onnx"),
        ("none/out.onnx", "none); accepted: a file in a folder that exists"),
        ("folder.onnx", "folder.onnx (a folder); accepted: a file in a folder that exists"),
        ("model.onnx", "model.onnx, which is read"),
        ("model.onnx/out.onnx", "(no folder"),
        ("n" * 300 + ".onnx", "(File name too long)"),
    ],
)
def test_invalid_output_is_rejected_before_reading_input(
    cli: Cli, files: tuple[Path, Path, Path], name: str, line: str
) -> None:
    """The output is checked before the model and the calibrator are read."""
    model, calib, _ = files
    (model.parent / "folder.onnx").mkdir()
    calib.write_bytes(b"no calibrator")
    result = cli("fuse", model, calib, "-o", model.parent / name)
    assert (result.status, len(result.err.splitlines())) == (2, 1)
    assert "output: found" in result.err
    assert line in result.err


@pytest.mark.slow
def test_damaged_model_is_one_line(files: tuple[Path, Path, Path]) -> None:
    model, calib, out = files
    model.write_bytes(b"no onnx")
    result = recalib("fuse", model, calib, "-o", out)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "accepted: an ONNX file" in result.stderr
    assert not out.exists()
