"""The dense prediction example runs on the files of a run, and its recipe is valid."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from recalib.recipe import read_recipe
from tests.training.engine.tiny import Onlooker
from training.engine.artifacts import load_all, run_recipe
from training.engine.checkpoints import FolderCheckpoints

_EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::recalib.errors.RecalibWarning")  # of a network of four epochs
def test_maps_are_compared_on_the_images_of_a_run(real_data: Path, tmp_path: Path) -> None:
    """The recipe with few scenes: temperatures improve the likelihood and keep the mIoU."""
    recipe = read_recipe(_EXAMPLES / "scenes.toml")
    options = {**recipe.data["options"], "scenes": [48, 24, 24], "size": 24}
    data = {**recipe.data, "options": options}
    recipe = recipe.model_copy(update={"data": data, "epochs": 4})
    loaded = load_all(recipe, real_data, confined=False)
    summary = run_recipe(recipe, loaded, tmp_path, FolderCheckpoints(tmp_path), Onlooker())
    example = runpy.run_path(str(_EXAMPLES / "dense_prediction.py"))
    results = example["compare"](tmp_path, real_data)
    before = results["identity"]
    assert before.miou == pytest.approx(summary["test"]["miou"], abs=1e-3)
    assert before.pixels["nll"].value == pytest.approx(summary["test"]["nll"], rel=1e-4)
    # Probabilities that round to the same float32 may change the largest class.
    assert results["temperature"].miou == pytest.approx(before.miou, abs=1e-3)
    assert results["temperature"].pixels["nll"].value < before.pixels["nll"].value
    assert example["table"](results).row_count == 6
