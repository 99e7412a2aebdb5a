"""Images in tables; arrays in other layouts; labels that are names."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
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
from training.data import DataSpec, Split, Splits, load

CLASSES = ["cat", "dog", "owl"]
Images = NDArray[np.uint8]


def images(rows: int, seed: int) -> tuple[Images, list[str]]:
    """Random images of 6x5, in the order of their classes."""
    values = np.random.default_rng(seed).integers(0, 256, (rows, 6, 5, 3), dtype=np.uint8)
    return values, sorted(CLASSES[row % 3] for row in range(rows))


def png(values: Images) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


def table(values: Images, labels: list[str], column: str = "bytes") -> pa.Table:
    encoded: list[Any] = [png(image) for image in values]
    if column == "structs":
        encoded = [{"bytes": image, "path": None} for image in encoded]
    elif column == "nested":
        encoded = values.tolist()
    kind = {"nested": pa.list_(pa.list_(pa.list_(pa.uint8())))}.get(column)
    return pa.table({"image": pa.array(encoded, kind), "label": labels})


def parquet_shards(path: Path, values: Images, labels: list[str]) -> str:
    for number, rows in enumerate((slice(0, 7), slice(7, None))):
        pq.write_table(table(values[rows], labels[rows]), f"{path}-{number}.parquet")
    return f"{path.name}-*.parquet"


def nested_lists(path: Path, values: Images, labels: list[str]) -> str:
    pq.write_table(table(values, labels, "nested"), f"{path}.parquet")
    return f"{path.name}.parquet"


def hugging_face_folder(path: Path, values: Images, labels: list[str]) -> str:
    """As `Dataset.save_to_disk`: Arrow streams, structs, numbers with names in the metadata."""
    names = {"names": CLASSES, "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"label": names}}})}
    data = table(values, labels, "structs")
    data = data.set_column(1, "label", pa.array([CLASSES.index(label) for label in labels]))
    data = data.replace_schema_metadata(metadata)
    path.mkdir()
    for number, rows in enumerate((data.slice(0, 4), data.slice(4))):
        with pa.ipc.new_stream(f"{path}/data-{number}.arrow", data.schema) as writer:
            writer.write_table(rows, max_chunksize=3)
    (path / "state.json").write_text("{}")
    return path.name


FORMATS: list[Callable[[Path, Images, list[str]], str]] = [
    parquet_shards, nested_lists, hugging_face_folder,
]  # fmt: skip


def batch(split: Split) -> NDArray[np.float32]:
    inputs = split.batch(range(len(split)))
    assert isinstance(inputs, Tensor)
    values: NDArray[np.float32] = inputs.numpy()
    return values


@pytest.mark.parametrize("memory", [2**31, 0])
@pytest.mark.parametrize("write", FORMATS)
def test_every_format_gives_the_same_rows(
    write: Callable[[Path, Images, list[str]], str], memory: int, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"normalise": "none", "memory": memory}
    for seed, name in enumerate(("train", "test")):
        values, labels = images(12, seed)
        options[name] = write(tmp_path / name, values, labels)
    splits = load(DataSpec("images", options, validation=3), tmp_path)
    assert splits.names == tuple(CLASSES)
    np.testing.assert_array_equal(batch(splits.test), np.moveaxis(values, 3, 1))
    assert [CLASSES[label] for label in splits.test.labels] == labels
    confined = load(DataSpec("images", options, validation=3), tmp_path, confined=True)
    assert confined.digest == splits.digest


def test_one_table_is_split_in_three(tmp_path: Path) -> None:
    """Every image is in one split; each class gives its share."""
    shards = parquet_shards(tmp_path / "photos", *images(30, 0))
    spec = DataSpec("images", {"train": shards}, test=0.2, validation=0.2)
    splits = load(spec, tmp_path)
    parts = (splits.train, splits.validation, splits.test)
    assert [len(part) for part in parts] == [19, 5, 6]
    assert sorted(np.concatenate([part.rows for part in parts])) == list(range(30))
    assert np.bincount(splits.test.labels).tolist() == [2, 2, 2]
    assert load(spec, tmp_path).digest == splits.digest
    for missing in ({"test": 0.2}, {"validation": 0.2}):
        (name,) = {"test", "validation"} - set(missing)
        with pytest.raises(InputError, match=rf"^data.{name}: found nothing"):
            load(DataSpec("images", {"train": shards}, **missing), tmp_path)


def test_imagenet_numbers_normalise_images(tmp_path: Path) -> None:
    values, labels = images(12, 0)
    shards = parquet_shards(tmp_path / "photos", values, labels)
    spec = DataSpec("images", {"train": shards, "normalise": "imagenet"}, 3, 3, stratified=False)
    splits = load(spec, tmp_path)
    expected = (values / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    expected = np.moveaxis(expected[splits.test.rows], 3, 1)
    np.testing.assert_allclose(batch(splits.test), expected, atol=1e-5)


def _postscript() -> bytes:
    """Pillow would start a program for it."""
    buffer = io.BytesIO()
    Image.new("RGB", (5, 6)).save(buffer, "EPS")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"no image", r"^photos.parquet: image\[4\]: found 8 bytes"),
        (_postscript(), r"^photos.parquet: image\[4\]: found .* bytes: no known format"),
    ],
)
def test_invalid_images_are_refused(damaged: bytes, message: str, tmp_path: Path) -> None:
    rows = table(*images(12, 0))
    encoded = rows["image"].to_pylist()
    encoded[4] = damaged
    pq.write_table(rows.set_column(0, "image", pa.array(encoded)), tmp_path / "photos.parquet")
    for memory in (2**31, 0):
        options = {"train": "photos.parquet", "memory": memory, "normalise": "unit"}
        with pytest.raises(InputError, match=message):
            load(DataSpec("images", options, validation=3, test=3), tmp_path)


@pytest.mark.parametrize("name", ["photos", "photos-*.tar"])
def test_folders_of_classes_and_shards_are_refused_with_what_reads_them(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos-0.tar").touch()
    with pytest.raises(InputError, match=r"^data.options.train: .*torchvision.datasets:Image"):
        load(DataSpec("images", {"train": name}, validation=3, test=3), tmp_path)


def test_links_out_of_the_data_folder_are_refused_where_confined(tmp_path: Path) -> None:
    inside = tmp_path / "data"
    inside.mkdir()
    parquet_shards(tmp_path / "photos", *images(12, 0))
    (inside / "all.parquet").symlink_to(tmp_path / "photos-0.parquet")
    for name in (
        "all.parquet",
        "../photos-0.parquet",
        "../pho*",
        str(tmp_path / "photos-0.parquet"),
    ):
        with pytest.raises(InputError, match="below the data folder"):
            load(DataSpec("images", {"train": name}), inside, confined=True)


def arrays(folder: Path, inputs: Any, labels: Any) -> dict[str, Any]:
    """Write both as .npz and as a pair of .npy; return the options for the first."""
    for seed, name in enumerate(("train", "test")):
        rows = np.roll(inputs, seed, axis=1)
        np.savez(folder / f"{name}.npz", inputs=rows, labels=labels)
        np.save(folder / f"{name}-x.npy", rows)
        np.save(folder / f"{name}-y.npy", labels)
    return {"train": "train.npz", "test": "test.npz"}


def loaded(folder: Path, **options: Any) -> Splits:
    return load(DataSpec("arrays", options, validation=3), folder)


def test_images_of_bytes_in_any_layout(tmp_path: Path) -> None:
    values, labels = images(12, 0)
    options = arrays(tmp_path, values, labels)
    pairs = {name: [f"{name}-x.npy", f"{name}-y.npy"] for name in options}
    splits = loaded(tmp_path, **options, layout="hwc", normalise="unit")
    expected = np.moveaxis(np.roll(values, 1, axis=1), 3, 1).astype(np.float32) / 255
    np.testing.assert_array_equal(batch(splits.test), expected)
    assert (splits.names, splits.facts) == (tuple(CLASSES), {"features": 90, "channels": 3})
    pair = loaded(tmp_path, **pairs, layout="hwc", normalise="unit")
    assert pair.digest == splits.digest
    options = arrays(tmp_path, values[..., 0], labels)
    grey = loaded(tmp_path, **options, layout="hw", normalise="standardise")
    assert batch(grey.test).shape == (12, 1, 6, 5)
    assert abs(batch(grey.train).mean()) < 0.2
    floats = arrays(tmp_path, values / 255, labels)
    channels_first = loaded(tmp_path, **floats, layout="hwc")
    np.testing.assert_allclose(batch(channels_first.test), expected, atol=1e-7)


@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        (np.uint8, {}, r"^data.options.layout: found inputs \(12, 6, 5, 3\); accepted: layout ="),
        (np.float32, {}, r"^data.options.layout: found inputs \(12, 6, 5, 3\)"),
        (np.uint8, {"layout": "hw"}, r"^data.options.layout: .*accepted: 3 axes"),
        (np.uint8, {"layout": "hwc"}, r"^data.options.normalise: found nothing for uint8 inputs"),
        (np.float32, {"layout": "hwc", "normalise": "unit"}, "^data.options.normalise: found unit"),
        (np.uint8, {"train": ["a.npy"]}, r"^options.train: found 1 files"),
        (np.uint8, {"train": ["train-x.npy", "train.npz"]}, r"^data.options.train: .*a .npy file"),
    ],
)
def test_ambiguous_arrays_are_refused(
    dtype: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    values, labels = images(12, 0)
    files = arrays(tmp_path, values.astype(dtype), labels)
    with pytest.raises(InputError, match=message):
        loaded(tmp_path, **(files | options))


def test_names_of_classes(tmp_path: Path) -> None:
    """Sorted by default, in the order of `classes` where it lists them."""
    inputs = np.random.default_rng(0).normal(size=(12, 4))
    files = arrays(tmp_path, inputs, ["dog", "cat", "owl"] * 4)
    assert loaded(tmp_path, **files).test.labels[:3].tolist() == [1, 0, 2]
    order = loaded(tmp_path, **files, classes=["owl", "dog", "cat", "bat"])
    assert (order.classes, order.test.labels[:3].tolist()) == (4, [1, 2, 0])
    numbers = arrays(tmp_path / ".", inputs, [1, 0, 2] * 4)
    assert loaded(tmp_path, **numbers, classes=CLASSES).names == tuple(CLASSES)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (["dog", "cat", "owl"], ["dog", "cat"], r"^train.npz: labels\[2\]: found 'owl'"),
        (["dog", "cat", "owl"], 2, "^options.classes: found 2 for 3 names, cat, dog, owl"),
        (["dog", "cat", "owl"], ["dog", "dog"], "^options.classes: .*different names"),
        ([0, 1, 2], ["dog", "cat"], r"^train.npz: labels\[2\]: found 2; accepted: 0 to 1"),
    ],
)
def test_labels_that_are_no_class_are_refused(
    labels: list[Any], classes: Any, message: str, tmp_path: Path
) -> None:
    files = arrays(tmp_path, np.random.default_rng(0).normal(size=(12, 4)), labels * 4)
    with pytest.raises(InputError, match=message):
        loaded(tmp_path, **files, classes=classes)
