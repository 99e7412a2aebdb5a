"""Sources, validation splits, long tails and digests."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from recalib.errors import InputError
from tests.hostile.bombs import claimed_columns
from training.data import DataSpec, Splits, load
from training.data.long_tail import long_tail_sizes, long_tailed
from training.data.pixels import Pixels


def _png(values: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


def _images(
    folder: Path, name: str, rows: int = 20, seed: int = 0, **columns: Any
) -> NDArray[np.uint8]:
    """Write random images of 6x5, labels 0 to 3 in turn; return their bytes."""
    values = np.random.default_rng(seed).integers(0, 256, (rows, 6, 5, 3), dtype=np.uint8)
    table = {"image": [_png(image) for image in values], "label": np.arange(rows) % 4, **columns}
    pq.write_table(pa.table(table), folder / name)
    return values


def _arrays(folder: Path, name: str, rows: int = 40, seed: int = 0, **arrays: Any) -> None:
    rng = np.random.default_rng(seed)
    contents = {"inputs": rng.normal(size=(rows, 3)), "labels": rng.integers(0, 4, rows), **arrays}
    np.savez(folder / name, **contents)


def _write_files(folder: Path) -> None:
    _arrays(folder, "train.npz")
    _arrays(folder, "test.npz", seed=1)


_ARRAYS = {"train": "train.npz", "test": "test.npz"}
_IMAGES = {"train": "train.parquet", "test": "test.parquet"}


def _batch(splits: Splits, name: str) -> NDArray[np.generic]:
    split = getattr(splits, name)
    batch = split.batch(range(len(split)))
    assert isinstance(batch, Tensor)
    return batch.numpy()


@pytest.mark.parametrize("memory", [2**31, 0])
def test_images(tmp_path: Path, memory: int) -> None:
    """Images are decoded at once or by batch, and scaled by the training images."""
    train = _images(tmp_path, "train.parquet") / 255
    test = _images(tmp_path, "test.parquet", seed=1) / 255
    options = {**_IMAGES, "memory": memory}
    splits = load(DataSpec("images", options, validation=4), tmp_path)
    mean, deviation = train.mean(axis=(0, 1, 2)), train.std(axis=(0, 1, 2))
    expected = ((test - mean) / deviation).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(_batch(splits, "test"), expected, rtol=1e-5, atol=1e-5)
    assert (len(splits.train), len(splits.validation), splits.classes) == (16, 4, 4)
    np.testing.assert_array_equal(np.sort(splits.validation.labels), [0, 1, 2, 3])
    assert splits.facts == {"channels": 3}


def test_images_in_structs_are_read(tmp_path: Path) -> None:
    """A struct column is read by its field `bytes`."""
    values = _images(tmp_path, "train.parquet")
    _images(tmp_path, "test.parquet", seed=1)
    plain = load(DataSpec("images", _IMAGES, validation=4), tmp_path)
    structs = [{"path": f"{row}.png", "bytes": _png(image)} for row, image in enumerate(values)]
    _images(tmp_path, "train.parquet", image=structs)
    assert load(DataSpec("images", _IMAGES, validation=4), tmp_path).digest == plain.digest


def test_images_of_several_sizes(tmp_path: Path) -> None:
    """Images of different sizes need `size`, to which all are scaled."""
    values = _images(tmp_path, "train.parquet")
    odd = [_png(image) for image in values[:19]] + [_png(values[19][:4])]
    _images(tmp_path, "test.parquet", seed=1, image=odd)
    with pytest.raises(InputError, match=r"image\[19\]: found an image of 4x5; accepted: 6x5"):
        load(DataSpec("images", _IMAGES, validation=4), tmp_path)
    odd_seed = {**_IMAGES, "size": 8}
    _images(tmp_path, "train.parquet", seed=2)
    splits = load(DataSpec("images", odd_seed, validation=4), tmp_path)
    assert _batch(splits, "test").shape == (20, 3, 8, 8)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"PAR1 and no more", "train.parquet: no Parquet footer"),
        (claimed_columns(900_000), "train.parquet: a file that cannot be read as parquet"),
    ],
    ids=["none", "claims"],
)
def test_damaged_image_file_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    """Raised before Arrow allocates the declared size."""
    _images(tmp_path, "test.parquet", seed=1)
    (tmp_path / "train.parquet").write_bytes(content)
    with pytest.raises(InputError, match=found) as excinfo:
        load(DataSpec("images", _IMAGES, validation=8), tmp_path)
    assert excinfo.value.field == "data.options.train"


@pytest.mark.parametrize("what", ["cut", "text", "none"])
def test_damaged_image_is_refused(tmp_path: Path, what: str) -> None:
    """The row of an image that cannot be decoded is named."""
    _images(tmp_path, "train.parquet")
    values = _images(tmp_path, "test.parquet", seed=1)
    encoded: list[bytes | None] = [_png(image) for image in values]
    image_bytes = encoded[7] or b""
    encoded[7] = {"cut": image_bytes[: len(image_bytes) - 30], "text": b"no image", "none": None}[
        what
    ]
    _images(tmp_path, "test.parquet", seed=1, image=encoded)
    for memory in (2**31, 0):
        with pytest.raises(InputError) as excinfo:
            load(DataSpec("images", {**_IMAGES, "memory": memory}, validation=4), tmp_path)
        assert excinfo.value.field == "test.parquet: image[7]"


def test_arrays(tmp_path: Path) -> None:
    _write_files(tmp_path)
    _arrays(tmp_path, "validation.npz", 10, seed=2)
    options = {**_ARRAYS, "validation": "validation.npz"}
    splits = load(DataSpec("arrays", options), tmp_path)
    with np.load(tmp_path / "test.npz") as file:
        np.testing.assert_array_equal(_batch(splits, "test"), file["inputs"].astype(np.float32))
        np.testing.assert_array_equal(splits.test.labels, file["labels"])
    assert (len(splits.validation), splits.facts) == (10, {"features": 3})


def test_dense_arrays(tmp_path: Path) -> None:
    """Inputs (N, C, H, W) may have a label for each pixel."""
    for seed, name in enumerate(("train.npz", "test.npz")):
        rng = np.random.default_rng(seed)
        inputs, labels = rng.normal(size=(9, 2, 4, 5)), rng.integers(0, 3, (9, 4, 5))
        _arrays(tmp_path, name, inputs=inputs, labels=labels)
    spec = DataSpec("arrays", _ARRAYS, validation=3, stratified=False)
    splits = load(spec, tmp_path)
    assert splits.train.labels.shape == (6, 4, 5)
    assert splits.facts == {"features": 40, "channels": 2}
    with pytest.raises(InputError, match="stratified"):
        load(DataSpec("arrays", _ARRAYS, validation=3), tmp_path)


def test_text(tmp_path: Path) -> None:
    """Words are numbered by frequency in the training texts; unknown words share one number."""
    table = {"text": ["Good, good film", "bad film", "so so"], "label": [1, 0, 0]}
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    table = {"text": ["film good GOOD", "odd", ""], "label": [1, 0, 1]}
    pq.write_table(pa.table(table), tmp_path / "test.parquet")
    spec = DataSpec("text", _IMAGES, validation=1, stratified=False)
    splits = load(spec, tmp_path)
    # film, good and so occur twice, then "," and "bad": alphabetically among equals.
    np.testing.assert_array_equal(_batch(splits, "test"), [[2, 3, 3], [1, 0, 0], [0, 0, 0]])
    assert splits.facts == {"vocabulary": 7}


def test_digest(tmp_path: Path) -> None:
    """The same description gives the same digest, and any other row, label or order another."""
    _write_files(tmp_path)
    spec = DataSpec("arrays", _ARRAYS, validation=8)
    digest = load(spec, tmp_path).digest
    assert load(spec, tmp_path).digest == digest
    assert load(DataSpec("arrays", _ARRAYS, validation=8, seed=1), tmp_path).digest != digest
    assert load(DataSpec("arrays", _ARRAYS, validation=9), tmp_path).digest != digest
    with np.load(tmp_path / "test.npz") as file:
        inputs, labels = file["inputs"], file["labels"]
    _arrays(tmp_path, "test.npz", inputs=inputs[::-1], labels=labels[::-1])
    assert load(spec, tmp_path).digest != digest
    _arrays(tmp_path, "test.npz", inputs=inputs, labels=(labels + 1) % 4)
    assert load(spec, tmp_path).digest != digest
    _arrays(tmp_path, "test.npz", inputs=inputs, labels=labels)
    assert load(spec, tmp_path).digest == digest
    inputs[5, 1] = np.nextafter(inputs[5, 1].astype(np.float32), np.float32(9))
    _arrays(tmp_path, "test.npz", inputs=inputs, labels=labels)
    assert load(spec, tmp_path).digest != digest


@pytest.mark.parametrize("validation", [10, 0.25])
def test_validation_rows(tmp_path: Path, validation: float) -> None:
    """Training and validation rows are all rows once; stratified, each class gives its share."""
    labels = np.repeat([0, 1, 2, 3], [16, 12, 8, 4])
    _arrays(tmp_path, "train.npz", labels=labels)
    _arrays(tmp_path, "test.npz", seed=1)
    splits = load(DataSpec("arrays", _ARRAYS, validation=validation), tmp_path)
    assert np.bincount(splits.validation.labels).tolist() == [4, 3, 2, 1]
    all_rows = np.sort(np.concatenate([splits.train.rows, splits.validation.rows]))
    np.testing.assert_array_equal(all_rows, np.arange(40))
    chance = [DataSpec("arrays", _ARRAYS, validation, stratified=False, seed=i) for i in range(9)]
    random_splits = [load(split, tmp_path).validation for split in chance]
    assert {len(split) for split in random_splits} == {10}
    assert len({tuple(np.bincount(split.labels, minlength=4)) for split in random_splits}) > 1


def test_fewer_rows(tmp_path: Path) -> None:
    """`rows` leaves out training rows and touches no others."""
    _write_files(tmp_path)
    full = load(DataSpec("arrays", _ARRAYS, validation=8), tmp_path)
    fewer = load(DataSpec("arrays", _ARRAYS, validation=8, rows=5), tmp_path)
    assert len(fewer.train) == 5
    assert set(fewer.train.rows) < set(full.train.rows)
    assert fewer.digests["validation"] == full.digests["validation"]


@pytest.mark.parametrize(
    ("classes", "rows", "kept"), [(10, 5000, 20_431), (100, 500, 19_573)], ids=["10", "100"]
)
def test_long_tail_sizes_match_the_paper(classes: int, rows: int, kept: int) -> None:
    """Paper 003, appendix C, gives these sizes for CIFAR's 50,000 rows at a ratio of 0.1."""
    assert long_tail_sizes(rows, classes, 0.1).sum() == kept
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), rows))
    chosen = long_tailed(labels, classes, 0.1, seed=3)
    assert np.bincount(labels[chosen])[[0, -1]].tolist() == [rows, rows // 10]
    assert (np.diff(chosen) > 0).all()
    np.testing.assert_array_equal(chosen, long_tailed(labels, classes, 0.1, seed=3))
    assert not np.array_equal(chosen, long_tailed(labels, classes, 0.1, seed=4))


def test_long_tail_leaves_test_rows_unchanged(tmp_path: Path) -> None:
    _arrays(tmp_path, "train.npz", 80, labels=np.arange(80) % 4)
    _arrays(tmp_path, "test.npz", seed=1)
    spec = DataSpec("arrays", _ARRAYS, validation=0.5, long_tail=0.125)
    splits = load(spec, tmp_path)
    # 20 · 0.125^(i/3) is 20, 10, 5 and 2.5; halves of 37 rows.
    counts = np.bincount(splits.train.labels) + np.bincount(splits.validation.labels)
    assert counts.tolist() == [20, 10, 5, 2]
    assert len(splits.test) == 40


def test_repeated_rows(tmp_path: Path) -> None:
    """Test rows that are also training rows are counted; overlapping splits are refused."""
    _write_files(tmp_path)
    with np.load(tmp_path / "train.npz") as file:
        train = file["inputs"]
    with np.load(tmp_path / "test.npz") as file:
        test = file["inputs"]
    test[:3] = train[:3]
    _arrays(tmp_path, "test.npz", seed=1, inputs=test)
    spec = DataSpec("arrays", {**_ARRAYS, "validation": "validation.npz"})
    _arrays(tmp_path, "validation.npz", seed=2)
    assert load(spec, tmp_path).repeated == 3
    _arrays(tmp_path, "validation.npz", seed=1, inputs=test)
    with pytest.raises(InputError, match="40 of 40 rows that are in validation as well"):
        load(spec, tmp_path)


def _without(folder: Path) -> None:
    np.savez(folder / "test.npz", inputs=np.zeros((3, 3)))


def _fewer_features(folder: Path) -> None:
    _arrays(folder, "test.npz", inputs=np.zeros((40, 2)))


def _too_large(folder: Path) -> None:
    _arrays(folder, "test.npz", labels=np.array([0] * 39 + [4]))


def _negative(folder: Path) -> None:
    _arrays(folder, "train.npz", labels=np.array([0] * 39 + [-1]))


def _fractions(folder: Path) -> None:
    _arrays(folder, "train.npz", labels=np.full(40, 0.5))


def _nan(folder: Path) -> None:
    inputs = np.ones((40, 3))
    inputs[4, 2] = np.nan
    _arrays(folder, "train.npz", inputs=inputs)


def _too_far(folder: Path) -> None:
    _arrays(folder, "train.npz", inputs=np.full((40, 3), 1e300))


def _pickle(folder: Path) -> None:
    np.savez(folder / "train.npz", inputs=np.array([{}] * 40), labels=np.zeros(40, dtype=int))


def _no_zip(folder: Path) -> None:
    (folder / "train.npz").write_bytes(b"PK\x03\x04 and no more")


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (_without, "data.options.test"),
        (_fewer_features, "data.options.test"),
        (_too_large, "test.npz: labels[39]"),
        (_negative, "train.npz: labels[39]"),
        (_fractions, "train.npz: labels"),
        (_nan, "train.npz: inputs[4]"),
        (_too_far, "train.npz: inputs[0]"),
        (_pickle, "data.options.train"),
        (_no_zip, "data.options.train"),
    ],
)
def test_damaged_arrays(tmp_path: Path, damage: Any, field: str) -> None:
    _write_files(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError) as excinfo:
        load(DataSpec("arrays", _ARRAYS, validation=8), tmp_path)
    assert excinfo.value.field == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source": "sql"}, "data.source"),
        ({"validation": None}, "data.validation"),
        ({"validation": 40}, "data.validation"),
        ({"validation": 2.5}, "data.validation"),
        ({"validation": -1}, "data.validation"),
        ({"validation": float("nan")}, "data.validation"),
        ({"rows": 33}, "data.rows"),
        ({"seed": -1}, "data.seed"),
        ({"options": {**_ARRAYS, "classes": 0}}, "options.classes"),
        ({"long_tail": 0.0}, "data.long_tail"),
        ({"long_tail": 1.5}, "data.long_tail"),
        ({"options": {**_ARRAYS, "train": "none.npz"}}, "data.options.train"),
        ({"options": {**_ARRAYS, "train": "a\0b"}}, "data.options.train"),
        ({"options": {**_ARRAYS, "labels": "y"}}, "data.options.train"),
        ({"options": {**_ARRAYS, "script": "x.py"}}, "options.script"),
    ],
)
def test_invalid_specifications_are_refused(
    tmp_path: Path, changes: dict[str, Any], field: str
) -> None:
    _write_files(tmp_path)
    spec = {"source": "arrays", "options": _ARRAYS, "validation": 8} | changes
    with pytest.raises(InputError) as excinfo:
        load(DataSpec(**spec), tmp_path)
    assert excinfo.value.field == field


@pytest.mark.parametrize("name", ["../outside.npz", "link.npz", "{folder}/outside.npz"])
def test_files_outside_are_refused_where_confined(tmp_path: Path, name: str) -> None:
    """Paths with .., links and absolute paths out of the folder are refused."""
    inside = tmp_path / "data"
    inside.mkdir()
    _write_files(inside)
    _arrays(tmp_path, "outside.npz")
    (inside / "link.npz").symlink_to(tmp_path / "outside.npz")
    options = {**_ARRAYS, "train": name.format(folder=tmp_path)}
    spec = DataSpec("arrays", options, validation=8)
    assert len(load(spec, inside).train) == 32
    with pytest.raises(InputError, match="below the data folder"):
        load(spec, inside, confined=True)
    within = DataSpec("arrays", _ARRAYS, validation=8)
    assert len(load(within, inside, confined=True).train) == 32


def test_shapes() -> None:
    """The seed determines the shapes; every class occurs with the three intensities."""
    spec = DataSpec("shapes", {"train": 30, "validation": 5, "test": 5, "noise": 0.0})
    splits = load(spec)
    assert load(spec).digest == splits.digest
    again = DataSpec("shapes", {**spec.options, "seed": 1})
    assert load(again).digest != splits.digest
    inputs, labels = _batch(splits, "train"), splits.train.labels
    assert inputs.shape == (30, 1, 32, 32)
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    # Without noise, shapes have intensity ½, 1 or 1½, and the background has 0.
    assert set(np.unique(inputs[:, 0][labels > 0])) == {0.5, 1.0, 1.5}
    assert not inputs[:, 0][labels == 0].any()


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("shapes", {"train": 10**12}),
        ("shapes", {"size": 10**6}),
        ("shapes", {"train": 2**17, "size": 32}),
        ("images", {**_IMAGES, "size": 10**5}),
    ],
)
def test_sizes_beyond_memory_are_refused(
    source: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Raised before anything is drawn or read."""
    with pytest.raises(InputError, match=r"size: found [0-9e+]+; accepted: (at most|1 to)"):
        load(DataSpec(source, options, validation=4), tmp_path)


def test_cifar10(real_data: Path, tmp_path: Path) -> None:
    """Models receive the same pixels as an independent JPEG decoder gives."""
    for name, rows in (("train", 300), ("test", 100)):
        table = pq.read_table(real_data / f"cifar10-{name}.parquet").slice(0, rows)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    splits = load(DataSpec("images", _IMAGES, validation=50), tmp_path)
    row = table["image"][17].as_py()
    expected = np.asarray(Image.open(io.BytesIO(row))).transpose(2, 0, 1) / 255
    assert isinstance(splits.test.inputs, Pixels)
    scale = splits.test.inputs.scale
    mean, deviation = np.array(scale.mean), np.array(scale.deviation)
    image = _batch(splits, "test")[17] * deviation[:, None, None] + mean[:, None, None]
    np.testing.assert_allclose(image, expected, atol=1e-6)
    np.testing.assert_array_equal(splits.test.labels, table["label"])
    assert (splits.classes, splits.repeated) == (10, 0)
