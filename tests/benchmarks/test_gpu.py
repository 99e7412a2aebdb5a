"""`make gpu`: without a GPU it says so, and its driver runs on a CPU at a small size."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from benchmarks.training import gpu
from benchmarks.training.objectives import OBJECTIVES
from benchmarks.training.running import Budget
from recalib.losses import LOSSES


def test_without_a_gpu_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    gpu.main([])
    assert capsys.readouterr().out == "no GPU that torch can use on this machine: nothing was run\n"


def test_missing_packages_are_named_at_once_and_their_steps_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Before any step; those that lack nothing run."""
    assert gpu._missing(gpu._NEEDED["tests"]) == []  # the names are those of distributions
    monkeypatch.setattr(gpu, "_missing", lambda names: sorted({"scipy", "pytest"} & set(names)))
    steps: list[str] = []
    for name in ("_overhead", "_data_path", "_train", "_tests"):
        monkeypatch.setattr(gpu, name, lambda *_, name=name: steps.append(name))
    gpu.main(["--device", "cpu", "--output", str(tmp_path)])
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith(" -m pip install scipy pytest")
    assert second == "not run without them: data, processes, training, tests"
    assert steps == ["_overhead"]


def test_table_has_the_numbers_of_each_paper() -> None:
    assert set(gpu.PUBLISHED) <= set(OBJECTIVES)
    test = {"accuracy": 0.94, "ece": 0.031, "ece_l2_equal_mass": 0.042}
    after = {"accuracy": 0.94, "ece": 0.011, "ece_l2_equal_mass": 0.012}
    measured = {"": {"test": test}, "TS": {"test": after}}
    stories = [
        {"objective": "FLSD-53, summed", "seconds": 9.0, "measured": measured},
        {"objective": "CE", "diverged": "NaN"},
    ]
    *_, flsd, diverged = gpu.comparison(stories, Budget())
    assert [cell.strip() for cell in flsd.split("|")[1:-1]] == [
        "FLSD-53, summed", "94.0", "3.10", "1.10", "95.0", "1.55", "0.95", "94.8", "3.84", "",
        "4.20", "1.20", "", "", "", "9",
    ]  # fmt: skip
    assert diverged.startswith("| CE | diverged |")


def write_images(path: Path, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    images = []
    for pixels in rng.integers(0, 256, (rows, 8, 8, 3), dtype=np.uint8):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "png")
        images.append({"bytes": buffer.getvalue()})
    labels = rng.integers(0, 10, rows)
    pq.write_table(pa.table({"image": images, "label": labels}), path)


@pytest.mark.slow
def test_driver_runs_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Overhead, two processes by gloo, and two objectives; finished runs are not repeated."""
    write_images(tmp_path / "cifar10-train.parquet", 5_300, 0)
    write_images(tmp_path / "cifar10-test.parquet", 60, 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RECALIB_DATA", ".")
    out = tmp_path / "out"
    arguments = [
        "--device", "cpu", "--model", "resnet8", "--width", "4", "--size", "8", "--rows", "200",
        "--epochs", "1", "--batch", "50", "--shifted", "5", "--times", "1", "--output", str(out),
        "--cache", str(out / "runs"), "--objectives", "CE", "CE + SB-ECE",
    ]  # fmt: skip
    gpu.main([*arguments, "--steps", "overhead", "data", "processes", "training"])
    costs = (out / "overhead.md").read_text()
    assert all(f"| {name} |" in costs for name in LOSSES)
    assert "| fast |" in (out / "data.md").read_text()
    assert (out / "two-processes" / "run" / "weights.safetensors").is_file()
    table = (out / "cifar10.md").read_text()
    assert "# resnet8 on CIFAR-10: 1 of the papers' 350 epochs" in table
    assert "| CE | " in table
    assert "| CE + SB-ECE | " in table
    runs = {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()}
    assert len(runs) == 2
    with np.load(next(iter(runs))) as run:
        assert run["test_logits"].shape == (60, 10)
    gpu.main([*arguments, "--steps", "training"])
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").iterdir()} == runs
