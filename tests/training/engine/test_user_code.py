"""Errors of a user's code and files name the field, and leave no folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import torch

from recalib.errors import InputError
from tests.training.engine.tiny import Onlooker, recipe
from training.data import DataSpec, load
from training.engine.artifacts import load_all, run_recipe
from training.engine.checkpoints import FolderCheckpoints
from training.engine.weights import read_weights

_USER_CODE = """
import numpy as np


def network(num_classes):
    raise ValueError("no pretrained weights")


class Rows:
    def __init__(self, wrong=None):
        self.wrong = wrong
        if wrong == "file":
            raise FileNotFoundError("images.zip")

    def __len__(self):
        return 20

    def __getitem__(self, row):
        if row == self.wrong:
            raise KeyError("mask")
        return np.random.default_rng(row).normal(size=2), row % 2
"""


def data(folder: Path, **train: Any) -> dict[str, Any]:
    (folder / "mine.py").write_text(_USER_CODE)
    options = {"factory": f"{folder}/mine.py:Rows", "train": train}
    return {"source": "dataset", "options": options, "validation": 5, "test": 5}


def run(folder: Path, **fields: Any) -> None:
    config = recipe(report=False, epochs=1, **fields)
    output = folder / "run"
    loaded = load_all(config, folder, confined=False)
    run_recipe(config, loaded, output, FolderCheckpoints(output), Onlooker())


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"wrong": "file"},
            r"^data.options.train: found FileNotFoundError: images.zip; accepted: ",
        ),
        ({"wrong": 7}, r"^Rows\[7\]: found KeyError: 'mask'; accepted: an item"),
    ],
)
def test_errors_of_a_data_set_are_named(train: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as raised:
        run(tmp_path, data=data(tmp_path, **train))
    assert raised.value.__cause__ is not None  # `--debug` shows the user's line


def test_error_of_a_network_is_named_and_leaves_no_folder(tmp_path: Path) -> None:
    name = f"{tmp_path}/mine.py:network"
    message = "^model.name: found .*network, which raises ValueError: no pretrained weights"
    with pytest.raises(InputError, match=message):
        run(tmp_path, data=data(tmp_path), model={"name": name})
    assert not (tmp_path / "run").exists()


def test_missing_label_is_no_class(tmp_path: Path) -> None:
    # Images are decoded before labels are read: these are the smallest.
    images = [b"P6 1 1 255\n\0\0\0"] * 3
    columns = {"image": images, "label": ["cat", None, "dog"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=r"^rows.parquet: label\[1\]: found nothing"):
        load(DataSpec("images", {"train": "rows.parquet"}, validation=1, test=1), tmp_path)


def test_saved_objects_are_refused_without_advice_to_run_them(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"head.weight": Path("x")}, path)
    with pytest.raises(InputError, match=r"weights.pth: objects other than tensors"):
        read_weights(path)
