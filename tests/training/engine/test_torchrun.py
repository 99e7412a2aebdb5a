"""Two processes of torchrun give the results of one; only rounding differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from recalib.recipe import Recipe
from tests.cli.test_train import write_data, write_recipe
from tests.training.engine.test_dense import VOID, save, scenes
from tests.training.engine.tiny import Onlooker
from training.engine.artifacts import load_all, run_recipe
from training.engine.checkpoints import FolderCheckpoints

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[3]
#: `recalib train` of each folder, one after the other: most of the time is the processes' imports.
_PROGRAM = """
import atexit
import sys

from torch import distributed

from recalib.cli import main

atexit.register(lambda: print("in a group:", distributed.is_initialized(), file=sys.stderr))

for folder in sys.argv[1:]:
    try:
        main(["train", f"{folder}/recipe.json", "-o", f"{folder}/two", "--json"])
    except SystemExit as end:
        assert not end.code, end.code
"""
#: A network for rows, with a layer without gradient and a last layer of another name than most,
#: and one for pixels.
_NETWORKS = """
from torch import nn

class Rows(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.pooler, self.score = nn.Linear(2, 2), nn.Linear(2, classes)

    def forward(self, rows):
        return self.score(rows)

class Pixels(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Conv2d(1, classes, 3, padding=1)

    def forward(self, images):
        return self.head(images)
"""
_PARTS = {
    "accumulate": 2,
    "clip_norm": 0.1,
    "ema_decay": 0.9,
    "loss": {"options": {"weight": [0.1, 1.0, 7.0]}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each recipe, with the files of two processes and of one."""
    root = tmp_path_factory.mktemp("torchrun")
    networks = root / "networks.py"
    networks.write_text(_NETWORKS)
    for name, options in (("rows", _PARTS), ("whole-batch", {"loss": {"secondary": "sb_ece"}})):
        (root / name).mkdir()
        write_data(root / name)
        write_recipe(root / name, **options, model={"name": f"{networks}:Rows"})
    _write_pixels(root / "pixels", f"{networks}:Pixels")
    folders = ["rows", "whole-batch", "pixels"]
    (root / "program.py").write_text(_PROGRAM)
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    result = subprocess.run(
        [sys.executable, *launcher, "program.py", *folders],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n}\n") == len(folders)  # only the first process prints
    # A thread of a group that is left at the interpreter's end sometimes aborts it.
    assert result.stderr.count("in a group: False") == 2
    assert "2 parameters get no gradient and stay as they are, such as pooler" in result.stderr
    for name in folders:
        folder = root / name
        config = Recipe.of(json.loads((folder / "recipe.json").read_text()))
        loaded = load_all(config, folder, confined=False)
        run_recipe(config, loaded, folder / "one", FolderCheckpoints(folder / "one"), Onlooker())
    return root


def _write_pixels(folder: Path, network: str) -> None:
    """Seven images make one of the processes pad its part."""
    folder.mkdir()
    data = {**save(folder, ignore_index=VOID)}
    images, labels = scenes(7, 2)
    np.savez(folder / "test.npz", inputs=images, labels=labels)
    recipe = {
        "data": data, "model": {"name": network}, "epochs": 1, "batch_size": 4, "device": "cpu",
        "report": False, "workers": 1, "dense": {"logit_pixels": 90},
    }  # fmt: skip
    (folder / "recipe.json").write_text(json.dumps(recipe))


@pytest.mark.parametrize("name", ["rows", "whole-batch"])
def test_gradients_are_averaged_and_predictions_gathered(runs: Path, name: str) -> None:
    single, double = (load_file(runs / name / n / "weights.safetensors") for n in ("one", "two"))
    for parameter, value in single.items():
        np.testing.assert_allclose(double[parameter], value, rtol=1e-5, atol=1e-6)
    with (
        np.load(runs / name / "one/test.npz") as one,
        np.load(runs / name / "two/test.npz") as two,
    ):
        np.testing.assert_allclose(two["logits"], one["logits"], rtol=1e-5, atol=1e-5)
    assert _result(runs / name / "two")["epochs"] == 3


def test_metrics_and_sample_of_pixels_are_those_of_one_process(runs: Path) -> None:
    single, other = (_result(runs / "pixels" / name) for name in ("one", "two"))
    assert single["test"] == pytest.approx(other["test"], rel=1e-4)
    assert single["dense"]["test"]["images"]["count"] == 7
    assert [c["pixels"] for c in single["dense"]["test"]["classes"]] == [
        c["pixels"] for c in other["dense"]["test"]["classes"]
    ]
    with (
        np.load(runs / "pixels/one/test.npz") as first,
        np.load(runs / "pixels/two/test.npz") as second,
    ):
        assert len(first["labels"]) == 90
        np.testing.assert_array_equal(first["labels"], second["labels"])
        np.testing.assert_allclose(first["logits"], second["logits"], rtol=1e-4, atol=1e-5)


def _result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())
