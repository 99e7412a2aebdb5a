"""Map-style data sets of the user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from recalib.errors import InputError
from tests.training.engine.tiny import Memory, Onlooker, recipe
from training.data import DataSpec, Splits, load
from training.engine.loop import train

MODULE = """
import random
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

class Points(Dataset):
    '''Three classes around three points; with `noise`, each reading of an item is another.'''
    classes = ["red", "green", "blue"]

    def __init__(self, rows, seed, noise=0.0, form="pair"):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, 3, rows)
        self.points = rng.standard_normal((rows, 2)) + np.eye(3)[self.labels, :2] * 3
        self.noise, self.form = noise, form

    def __len__(self):
        return len(self.points)

    def __getitem__(self, row):
        point, label = self.points[row], self.labels[row]
        random_numbers = [random.gauss(0, 1), float(np.random.normal() + torch.randn(()))]
        point = point + self.noise * np.array(random_numbers)
        if self.form == "dictionary":
            return {"x": point[0], "y": torch.tensor(point[1]), "label": self.classes[label]}
        if self.form == "three":
            return point[:1], point[1:], torch.tensor(label)
        if self.form == "image":
            pixels = np.full((4, 5, 3), 80 * label + row % 80, np.uint8)
            return {"image": Image.fromarray(pixels), "label": int(label)}
        if self.form == "nothing":
            return point
        if self.form == "ragged":
            return np.append(point, np.zeros(row)), label
        return point, label

def numbers():
    return [1, 2, 3]

def iterable(rows, seed):
    return iter(Points(rows, seed))
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    (tmp_path / "points.py").write_text(MODULE)
    return str(tmp_path / "points.py")


def loaded(module: str, name: str = "Points", **options: Any) -> Splits:
    factory = {"factory": f"{module}:{name}"}
    parts = {part: {"rows": 40, "seed": i, **options} for i, part in enumerate(("train", "test"))}
    return load(DataSpec("dataset", {**factory, **parts}, validation=10))


@pytest.mark.slow
def test_items_become_batches(module: str) -> None:
    pairs = loaded(module)
    assert pairs.facts == {"features": 2}
    assert pairs.names == ("red", "green", "blue")
    expected = pairs.test.batch([3, 1])
    assert isinstance(expected, Tensor)
    assert expected.dtype == torch.float32
    three = loaded(module, form="three").test.batch([3, 1])
    assert torch.equal(torch.cat(tuple(three), dim=1), expected)
    dictionaries = loaded(module, form="dictionary")
    batch = dictionaries.test.batch([3, 1])
    assert isinstance(batch, dict)
    assert torch.equal(torch.stack([batch["x"], batch["y"]], dim=1), expected)
    np.testing.assert_array_equal(dictionaries.test.labels, pairs.test.labels)


def test_images_of_pillow_are_normalised(module: str) -> None:
    splits = loaded(module, form="image")
    assert splits.facts == {"channels": 3}
    batch = splits.train.batch(range(len(splits.train)))
    assert isinstance(batch, Tensor)
    assert batch.shape == (30, 3, 4, 5)
    assert float(batch.mean().abs()) < 0.2


def test_random_items_depend_on_the_generator_alone(module: str) -> None:
    splits = loaded(module, noise=1.0)

    def training_batch(seed: int) -> Any:
        return splits.train.training_batch([5, 6], torch.Generator().manual_seed(seed))

    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = training_batch(1)
    assert torch.equal(torch.get_rng_state(), state)
    np.random.seed(3)  # noqa: NPY002
    assert torch.equal(training_batch(1), first)
    assert not torch.equal(training_batch(2), first)
    assert torch.equal(splits.test.batch([5, 6]), splits.test.batch([5, 6]))  # type: ignore[arg-type]
    assert loaded(module, noise=1.0).digest == splits.digest


@pytest.mark.slow
def test_recipe_trains_on_a_dataset(module: str) -> None:
    """A run with random items is the same each time."""
    runs = [
        train(recipe(epochs=10), loaded(module, noise=0.3), Memory(), Onlooker()) for _ in range(2)
    ]
    assert runs[0].history[-1]["validation"]["accuracy"] > 0.6
    for name, tensor in runs[0].weights.items():
        assert torch.equal(tensor, runs[1].weights[name])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Points", {"form": "nothing"}, r"^Points\[0\]: found ndarray; accepted: \(input, label\)"),
        ("Points", {"form": "ragged"}, r"^Points\[.*accepted: arrays or tensors of one shape"),
        ("Points", {"colour": 1}, "^data.options.train: found .*'colour'"),
        ("Points", {"rows": 0}, "^data.options.train: found Points without items"),
        ("iterable", {}, "^data.options.train: found iterator; accepted: a map-style"),
        ("absent", {}, "^data.options.factory: found .*no attribute 'absent'"),
        ("np", {}, "^data.options.factory: found .*a module"),
    ],
)
def test_datasets_that_cannot_be_used_are_refused(
    module: str, name: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        loaded(module, name, **options).train.batch([0, 1])


def test_decoded_images_are_those_of_the_folder(module: str) -> None:
    """The pixels of Pillow's images are unchanged before normalisation."""
    options = {"rows": 40, "seed": 0, "form": "image"}
    factory = {"factory": f"{module}:Points", "train": options, "normalise": "none", "size": 8}
    splits = load(DataSpec("dataset", factory, validation=10, test=10))
    row = int(splits.test.rows[0])
    pixels = np.full((4, 5, 3), 80 * splits.test.labels[0] + row % 80, np.uint8)
    expected = np.asarray(Image.fromarray(pixels).resize((8, 8)))
    batch = splits.test.batch([0])
    assert isinstance(batch, Tensor)
    np.testing.assert_array_equal(batch[0].permute(1, 2, 0).numpy(), expected)
