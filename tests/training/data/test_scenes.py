"""Scenes of labelled images: classes, void borders, and images that no two splits share."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from PIL import Image
from torch import Tensor

from recalib.errors import InputError
from recalib.metrics.dense import boundary_band
from training.data import DataSpec, Splits, load

VOID = 255


def write_images(path: Path, count: int, first: int) -> None:
    """Images of 8x8 pixels with labels 2, 5 and 7: red is 30 times the label, green the number."""
    labels = [(2, 5, 7)[i % 3] for i in range(count)]
    encoded = []
    for number, label in enumerate(labels):
        pixels = np.full((8, 8, 3), (30 * label, first + number, 0), np.uint8)
        pixels[:, :, 2] = np.arange(8) * 20
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "PNG")
        encoded.append(stream.getvalue())
    pa.parquet.write_table(pa.table({"image": encoded, "label": labels}), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_images(tmp_path / "train.parquet", 150, 0)
    write_images(tmp_path / "test.parquet", 60, 170)
    return tmp_path


def spec(**options: Any) -> DataSpec:
    files = {"train": "train.parquet", "test": "test.parquet"}
    defaults: dict[str, Any] = {"scenes": [12, 4, 6], "size": 24, "labels": [5, 2, 7]}
    return DataSpec("scenes", {**files, **defaults, **options})


def pixels_of(splits: Splits) -> dict[str, Any]:
    """Return the bytes of the scenes of each split."""
    parts = {name: getattr(splits, name) for name in ("train", "validation", "test")}
    return {name: part.inputs.pixels(part.rows) for name, part in parts.items()}


def test_pixels_have_the_class_of_their_image(folder: Path) -> None:
    splits = load(spec(), folder)
    assert (splits.classes, splits.ignore_index, splits.is_dense) == (3, VOID, True)
    for name, pixels in pixels_of(splits).items():
        labels = getattr(splits, name).labels
        assert pixels.shape == (*labels.shape, 3)
        classes = {30 * label: k for k, label in enumerate([5, 2, 7])}
        expected = np.vectorize(classes.get)(pixels[..., 0])
        counts = labels != VOID
        assert 0.3 < counts.mean() < 1
        np.testing.assert_array_equal(labels[counts], expected[counts])
        # Green is the number of the image. Neighbours may show the same one by chance.
        bands = np.stack([boundary_band(image[..., 1], 1) for image in pixels])
        assert (labels[bands] == VOID).all()
        assert bands.sum() > 0.8 * (labels == VOID).sum()
    assert set(np.unique(splits.train.labels)) == {0, 1, 2, VOID}
    # Textures continue over a mirrored edge: neighbours in a region differ by one step or none.
    scene, label = pixels_of(splits)["train"][0].astype(int), splits.train.labels[0]
    steps = np.abs(np.diff(scene[..., 2], axis=1))[(label[:, 1:] != VOID) & (label[:, :-1] != VOID)]
    assert set(steps.tolist()) <= {0, 20}


def test_splits_share_no_image(folder: Path) -> None:
    numbers = {n: set(np.unique(p[..., 1])) for n, p in pixels_of(load(spec(), folder)).items()}
    assert not numbers["train"] & numbers["validation"]
    assert not (numbers["train"] | numbers["validation"]) & numbers["test"]


def test_seed_determines_the_scenes(folder: Path) -> None:
    digest = load(spec(), folder).digest
    assert load(spec(), folder).digest == digest
    assert load(spec(seed=1), folder).digest != digest
    assert not (load(spec(border=0), folder).train.labels == VOID).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [5, 3]}, "labels.*no image of label 3"),
        ({"labels": [5, 5]}, "labels.*different"),
        ({"scenes": [1, 2]}, "scenes.*three"),
        ({"size": 10**6}, "size.*2\\^27"),
        ({"train": "absent.parquet"}, "train.*absent"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str, folder: Path) -> None:
    with pytest.raises(InputError, match=message):
        load(spec(**options), folder)


def test_images_of_cifar10_make_scenes(real_data: Path) -> None:
    files = {"train": "cifar10-train.parquet", "test": "cifar10-test.parquet"}
    options = {"scenes": [3, 1, 1], "size": 40}
    splits = load(DataSpec("scenes", {**files, **options}), real_data)
    assert splits.classes == 10
    batch = splits.train.batch([0, 1, 2])
    assert isinstance(batch, Tensor)
    assert batch.shape == (3, 3, 40, 40)
