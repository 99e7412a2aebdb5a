"""Dense predictions: void pixels, bounded memory, samples of pixels, and runs of recipes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from recalib.errors import InputError
from recalib.losses import LOSSES, QUADRATIC
from recalib.metrics.evaluate import evaluate
from recalib.recipe import Recipe
from tests.training.engine.tiny import Memory, Onlooker
from training import train as train_on_loaders
from training.data import DataSpec, Split, Splits, load
from training.data.arrays import Array
from training.data.augmentation import augmentation
from training.engine.artifacts import load_all, run_recipe
from training.engine.checkpoints import FolderCheckpoints
from training.engine.evaluate import Prediction, predict, predict_split
from training.engine.loading import BatchLoader
from training.engine.loop import train
from training.engine.objective import TrainingObjective
from training.engine.pixels import PixelSample, loss_pixels

VOID = 255


def scenes(count: int, seed: int = 0, size: int = 8) -> tuple[Any, Any]:
    """Return images (N, 1, S, S) and labels (N, S, S) of three classes with a void frame."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, (count, size, size))
    images = (labels + 0.8 * rng.standard_normal(labels.shape))[:, None].astype(np.float32)
    labels[:, 0], labels[:, :, -1] = VOID, VOID
    return images, labels


def splits(sizes: tuple[int, int, int] = (10, 5, 7)) -> Splits:
    parts = []
    for seed, count in enumerate(sizes):
        images, labels = scenes(count, seed)
        parts.append(Split.with_all_rows(Array(images), labels))
    return Splits(*parts, classes=3, facts={"channels": 1}, ignore_index=VOID)


def recipe(**more: Any) -> Recipe:
    defaults: dict[str, Any] = {
        "data": {"source": "arrays"},
        "model": {"name": "segmenter", "options": {"width": 2}},
        "epochs": 1,
        "batch_size": 4,
        "device": "cpu",
    }
    return Recipe.of({**defaults, **more})


def predicted(config: Recipe, fabric: Fabric, splits: Splits, **options: Any) -> Prediction:
    """Return the prediction for the test images."""
    loader = BatchLoader(fabric, {"test": splits.test})
    return predict_split(config, loader, network(), splits, "test", **options)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(1, 3, 3, padding=1)


def one_layer(classes: int) -> nn.Module:
    """Return a network without batch normalisation, in which images do not affect each other."""
    model = nn.Module()
    model.head = nn.Conv2d(1, classes, 3, padding=1)
    model.forward = model.head.forward  # type: ignore[method-assign]
    return model


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


def test_predictions_of_batches_are_those_of_all_pixels(fabric: Fabric) -> None:
    """Measures have all pixels that count; without a limit the rows are these pixels in order."""
    data = splits()
    prediction = predicted(recipe(), fabric, data, with_logits=True)
    dense = predict(fabric, network(), data.test)
    counts = data.test.labels != VOID
    rows, labels = np.moveaxis(dense, 1, -1)[counts], data.test.labels[counts]
    np.testing.assert_allclose(prediction.logits, rows, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(prediction.labels, labels)
    expected = evaluate(labels, logits=rows, metrics=["accuracy", "nll", "brier", "ece"])
    for name, metric in expected.items():
        assert prediction.measures[name] == pytest.approx(metric.value, rel=1e-5), name
    assert prediction.dense is not None
    assert prediction.dense.miou == prediction.measures["miou"]


def test_samples_do_not_depend_on_batches(fabric: Fabric) -> None:
    config = recipe(dense={"logit_pixels": 40})
    single, other = (
        predicted(c, fabric, splits(), with_logits=True)
        for c in (config, config.model_copy(update={"batch_size": 2}))
    )
    assert single.logits.shape == (40, 3)
    np.testing.assert_array_equal(single.labels, other.labels)
    np.testing.assert_allclose(single.logits, other.logits, rtol=1e-5, atol=1e-6)


def test_samples_are_uniform_and_bounded() -> None:
    """Each pixel that counts is sampled equally often, however many of its image count."""
    labels = np.zeros((3, 4, 4), np.int64)
    labels[1, 1:] = VOID
    counts, seeds, size = np.zeros((3, 16)), 800, 6
    for seed in range(seeds):
        halves = PixelSample(size, VOID, seed), PixelSample(size, VOID, seed)
        for image in range(3):
            numbers = (16 * image + np.arange(16.0)).reshape(1, 4, 4).astype(np.float32)
            halves[image == 2].add(image, numbers, labels[image])
        halves[0].merge(halves[1])
        rows = halves[0].rows()[0][:, 0].astype(int)
        assert len(rows) == size
        assert (np.diff(rows) > 0).all()
        counts.ravel()[rows] += 1
    share = size / 36
    assert counts[1, 4:].sum() == 0
    deviations = (counts[labels.reshape(3, 16) != VOID] / seeds - share) / np.sqrt(share / seeds)
    assert np.abs(deviations).max() < 4.5  # of 36 normal deviates: exceeded once in 4,000 runs


def test_memory_of_a_sample_does_not_grow_with_images() -> None:
    sample = PixelSample(100, None, 0)
    for image in range(50):
        sample.add(image, np.zeros((2, 40, 40), np.float32), np.zeros((40, 40), np.int64))
        assert sum(map(len, sample._parts)) <= 200
    assert len(sample.rows()[1]) == 100


@pytest.mark.parametrize("name", sorted(QUADRATIC - {"crl"}))
def test_quadratic_losses_of_all_pixels_of_an_image_do_not_change(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 5, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (3, 5, 5), generator=generator)
    labels[:, 0] = VOID
    loss = LOSSES[name](ignore_index=VOID)
    rows, targets, _ = loss_pixels(logits, labels, 100)
    assert len(targets) == 75
    assert float(loss(rows, targets)) == pytest.approx(float(loss(logits, labels)))


def test_sampled_mmce_has_the_documented_mean() -> None:
    """The mean over samples is that of all pairs, with 1/n of pairs of a pixel with itself."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(1, 3, 6, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 3, (1, 6, 6), generator=generator)
    loss, n = LOSSES["mmce"](), 9
    full = float(loss(logits, labels)) ** 2
    confidence, predicted = logits.softmax(dim=1).max(dim=1)
    own = float(((predicted == labels).double() - confidence).square().mean())
    pairs = (full - own / 36) / (1 - 1 / 36)
    torch.manual_seed(0)
    squares = [float(loss(*loss_pixels(logits, labels, n)[:2])) ** 2 for _ in range(300)]
    error = np.std(squares) / np.sqrt(len(squares))
    assert np.mean(squares) == pytest.approx(own / n + (1 - 1 / n) * pairs, abs=4 * error)
    assert abs(np.mean(squares) - full) > 4 * error


def test_history_of_crl_belongs_to_the_same_pixels() -> None:
    """An image gives the same pixels in each step, in any batch."""
    logits = torch.arange(2 * 3 * 16.0).reshape(2, 3, 4, 4)
    labels = torch.arange(2 * 16).reshape(2, 4, 4)
    rows, targets, numbers = loss_pixels(logits, labels, 5, torch.tensor([7, 2]))
    alone = loss_pixels(logits[1:], labels[1:], 5, torch.tensor([2]))
    assert numbers is not None
    assert numbers.tolist() == [*range(35, 40), *range(10, 15)]
    assert torch.equal(rows[5:], alone[0])
    assert torch.equal(targets[5:], alone[1])
    objective = TrainingObjective(
        recipe(loss={"secondary": "crl"}).loss, 10, ignore_index=VOID, image_pixels=5
    )
    assert len(objective.secondary.history) == 50  # type: ignore[union-attr, arg-type]


def test_parts_with_different_void_pixels_are_those_of_the_whole_batch() -> None:
    """Means are over the pixels of a step that count, in one part and in four."""
    data = splits((8, 5, 7))
    data.train.labels[::2, :6] = VOID

    def weights(accumulate: int, rate: float) -> Tensor:
        optimiser = {"momentum": 0.0, "weight_decay": 0.0, "learning_rate": rate}
        part = {"secondary": "mbls", "secondary_options": {"margin": 0.0}}
        options = {"batch_size": 8, "accumulate": accumulate, "loss": part}
        model = {"name": f"{__name__}:one_layer"}
        config = recipe(optimiser=optimiser, model=model, **options)
        tensors = train(config, data, Memory(), Onlooker()).weights.values()
        return torch.cat([tensor.flatten() for tensor in tensors])

    whole = weights(1, 1.0)
    assert (whole - weights(1, 1e-30)).norm() > 0.1
    torch.testing.assert_close(weights(4, 1.0), whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("secondary", "more"),
    [
        *((name, {}) for name in (*sorted(QUADRATIC), "sb_ece")),
        ("mmce", {"augmentation": "scale_flip"}),
        ("sb_ece", {"augmentation": "crop_flip", "workers": 1}),
    ],
)
@pytest.mark.slow
def test_runs_resume_exactly(secondary: str, more: dict[str, Any]) -> None:
    """Void pixels change no weights, and an interrupted run draws the same pixels and moves."""
    config = recipe(
        epochs=2,
        loss={"secondary": secondary},
        dense={"loss_pixels": 40},
        checkpoint_steps=1,
        **more,
    )
    data, checkpoints = splits(), Memory()
    expected = train(config, data, Memory(), Onlooker())
    steps = iter(range(100))

    def stop() -> None:
        if next(steps) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, data, checkpoints, Onlooker(stop))
    resumed = train(config, data, checkpoints, Onlooker())
    for name, weight in expected.weights.items():
        assert torch.equal(weight, resumed.weights[name]), name
    np.testing.assert_array_equal(expected.test.logits, resumed.test.logits)
    assert expected.history[-1]["validation"]["miou"] == resumed.validation.measures["miou"]


def save(folder: Path, **changes: Any) -> dict[str, Any]:
    """Write a data set with labels 0 to 2 and 255, and return the recipe that reads it."""
    for seed, name in enumerate(("train", "validation", "test")):
        images, labels = scenes(8, seed)
        np.savez(folder / f"{name}.npz", inputs=images, labels=labels)
    files = {name: f"{name}.npz" for name in ("train", "validation", "test")}
    return {"source": "arrays", "options": {**files, **changes}}


def test_void_label_without_ignore_index_is_an_error(tmp_path: Path) -> None:
    """255 becomes no class, whether or not the number of classes is known."""
    for options, message in (
        ({}, "options.classes.*label 255.*such as 3.*options.ignore_index"),
        ({"classes": 3}, r"labels\[0\]\[0\]\[0\].*255.*0 to 2.*options.ignore_index"),
        ({"classes": 3, "ignore_index": 254}, "255.*0 to 2, or ignore_index 254"),
    ):
        with pytest.raises(InputError, match=message):
            load_all(recipe(data=save(tmp_path, **options)), tmp_path, confined=False)
    for options in ({"ignore_index": VOID}, {"classes": 3, "ignore_index": VOID}):
        loaded = load_all(recipe(data=save(tmp_path, **options)), tmp_path, confined=False)
        assert (loaded.splits.classes, loaded.splits.ignore_index) == (3, VOID)


@pytest.mark.slow
def test_datasets_with_masks_are_dense(tmp_path: Path) -> None:
    """Images and masks of Pillow, as torchvision's data sets for segmentation have them."""
    (tmp_path / "masks.py").write_text(
        "import numpy as np\nfrom PIL import Image\n\n\nclass Masks:\n"
        "    def __init__(self, seed: int) -> None:\n        self.seed = seed\n\n"
        "    def __len__(self) -> int:\n        return 6\n\n"
        "    def __getitem__(self, row):\n        rng = np.random.default_rng([self.seed, row])\n"
        "        mask = rng.integers(0, 3, (8, 8)).astype(np.uint8)\n"
        "        image = np.repeat(80 * mask[:, :, None], 3, axis=2)\n        mask[0] = 255\n"
        "        return Image.fromarray(image), Image.fromarray(mask)\n"
    )
    parts = {name: {"seed": seed} for seed, name in enumerate(("train", "validation", "test"))}
    options: dict[str, Any] = {"factory": f"{tmp_path}/masks.py:Masks", **parts}
    with pytest.raises(InputError, match=r"options.classes.*label 255"):
        load(DataSpec("dataset", options))
    data = load(DataSpec("dataset", {**options, "ignore_index": VOID}))
    assert (data.classes, data.train.labels.shape) == (3, (6, 8, 8))
    result = train(recipe(batch_size=3), data, Memory(), Onlooker())
    assert result.test.logits.shape == (6 * 56, 3)


def test_void_label_of_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", inputs=np.zeros((4, 2)), labels=np.array([0, 1, 0, 255]))
    options = {"train": "a.npz", "test": "a.npz", "ignore_index": 255}
    with pytest.raises(InputError, match=r"ignore_index.*labels"):
        load_all(recipe(data={"source": "arrays", "options": options}), tmp_path, confined=False)


@pytest.mark.slow
def test_recipe_writes_rows_of_pixels_that_count(tmp_path: Path) -> None:
    """The files of a run, and metrics by class, image and boundary in its result."""
    data = save(tmp_path, ignore_index=VOID)
    config = recipe(
        data=data, dense={"logit_pixels": 100}, calibrate={"map": "temperature"}, report=False
    )
    output = tmp_path / "run"
    checkpoints = FolderCheckpoints(tmp_path)
    result = run_recipe(
        config, load_all(config, tmp_path, confined=False), output, checkpoints, Onlooker()
    )
    with np.load(output / "validation.npz") as file:
        assert file["logits"].shape == (100, 3)
        assert set(file["labels"].tolist()) <= {0, 1, 2}
    stored = json.loads((output / "result.json").read_text())
    assert stored["dense"]["test"]["miou"] == result["test"]["miou"]
    assert len(stored["dense"]["validation"]["classes"]) == 3
    assert stored["dense"]["test"]["images"]["count"] == 8
    assert stored["calibrated"]["accuracy"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"augmentation": "flip", "loss": {"secondary": "crl"}},
            "augmentation: found flip, with the loss crl of pixels.*none",
        ),
        ({"mixing": {"method": "cutmix"}}, "mixing.method: found cutmix, for labels of pixels"),
        ({"mixing": {"method": "mixup"}}, "mixing.method: found mixup, for labels of pixels"),
        ({"model": {"name": "resnet8"}}, r"model.name.*\(2, 3\).*\(2, 3, 8, 8\)"),
        ({"loss": {"options": {"ignore_index": 7}}}, "loss.options.ignore_index: found 7, and 255"),
    ],
)
def test_unsuitable_recipes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(recipe(**changes), splits(), Memory(), Onlooker())


def test_padding_of_a_crop_is_not_counted() -> None:
    """The objective of a cropped batch is that of its pixels from inside the image."""
    images, labels = scenes(6)
    augment = augmentation("crop", ignore_index=VOID)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = augment(torch.from_numpy(images), torch.from_numpy(labels), generator)
    assert isinstance(inputs, Tensor)
    outside = (inputs[:, 0] == 0).sum()
    assert outside > 50
    assert (targets[inputs[:, 0] == 0] == VOID).all()
    logits, counts = network()(inputs), targets != VOID
    for name in ("focal", "sb_ece"):
        loss = LOSSES[name](ignore_index=VOID)
        rows = LOSSES[name]()(logits.movedim(1, -1)[counts], targets[counts])
        torch.testing.assert_close(loss(logits, targets), rows)


def test_augmentation_without_a_void_label_is_refused() -> None:
    data = splits()
    parts = (replace(p, labels=p.labels % VOID) for p in (data.train, data.validation, data.test))
    without = Splits(*parts, classes=3, facts={"channels": 1})
    with pytest.raises(InputError, match=r"augmentation.*no void label.*options.ignore_index"):
        train(recipe(augmentation="scale_flip"), without, Memory(), Onlooker())


def test_loaders_give_a_sample_and_the_metrics_of_all_pixels() -> None:
    images, labels = map(torch.from_numpy, scenes(9))
    loader = DataLoader(TensorDataset(images, labels), batch_size=4)
    result = train_on_loaders(
        network(),
        {"train": loader, "validation": loader},
        options={"ignore_index": VOID},
        secondary="mmce",
        secondary_options={"ignore_index": VOID},
        dense={"logit_pixels": 50},
        epochs=1,
        device="cpu",
    )
    assert result.validation_logits.shape == (50, 3)
    with torch.no_grad():
        logits = result.model(images).movedim(1, -1)[labels != VOID].numpy()
    expected = evaluate(labels[labels != VOID].numpy(), logits=logits, metrics=["nll"])
    measured = result.history[-1]["validation"]
    assert measured["nll"] == pytest.approx(expected["nll"].value, rel=1e-5)
    assert 0 < measured["miou"] < 1
