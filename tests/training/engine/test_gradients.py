"""A step has the gradient of its whole batch, in any number of parts and processes, in float64.

Weights of parts are summed in float32 where classes have weights: a difference is below 1e-11.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.training.engine.gradients import CASES, PARTS, gradients
from training.engine.objective import TrainingObjective

Gradients = dict[str, NDArray[np.float64]]


@pytest.fixture(scope="module")
def of_one_process() -> Gradients:
    return gradients()


def differences(gradients: Gradients, reference: Gradients) -> dict[str, float]:
    """Return the largest difference from the gradient of one part and one process by case."""
    return {
        f"{case}, {parts}": float(
            np.abs(gradients[f"{case}, {parts}"] - reference[f"{case}, 1"]).max()
        )
        for case in CASES
        for parts in PARTS
    }


def test_parts_have_the_gradient_of_the_whole_batch(of_one_process: Gradients) -> None:
    assert max(differences(of_one_process, of_one_process).values()) < 1e-9
    assert all(np.abs(gradient).max() > 0.1 for gradient in of_one_process.values())


def test_means_of_parts_have_another_gradient(
    of_one_process: Gradients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data tell a step that divides by the weights of all parts from one that does not."""
    monkeypatch.setattr(TrainingObjective, "is_weighted", False)
    far = differences(gradients(), of_one_process)
    assert all(far[f"{case}, 4"] > 1e-3 for case in CASES)


@pytest.mark.slow
def test_two_processes_have_the_gradient_of_one(of_one_process: Gradients, tmp_path: Path) -> None:
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    result = subprocess.run(
        [sys.executable, *launcher, "-m", "tests.training.engine.gradients", "two.npz"],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(Path(__file__).parents[3]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    with np.load(tmp_path / "two.npz") as file:
        of_two = {name: file[name] for name in file.files}
    assert max(differences(of_two, of_one_process).values()) < 1e-9
