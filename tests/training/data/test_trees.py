"""The treebank's sentences as trees and as words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor

from recalib.errors import InputError
from training.data import DataSpec, Splits, load
from training.data.trees import Node, parse

_SENTENCES = [
    ("train", "(3 (2 Good) (2 film))"),
    ("train", "(1 (2 (2 a) (1 bad)) (2 film))"),
    ("train", "(2 (2 a) (2 film))"),
    ("dev", "(4 (4 good) (2 ,))"),
    ("test", "(0 (1 bad) (2 bad))"),
]


def _load(folder: Path, **options: object) -> Splits:
    splits, trees = zip(*_SENTENCES, strict=True)
    pq.write_table(pa.table({"split": splits, "tree": trees}), folder / "trees.parquet")
    return load(DataSpec("trees", {"file": "trees.parquet", **options}), folder)


def _batch(splits: Splits, name: str) -> list[object]:
    split = getattr(splits, name)
    batch = split.batch(range(len(split)))
    assert isinstance(batch, Tensor)
    rows: list[object] = batch.tolist()
    return rows


def test_parse() -> None:
    """Children come before their parents; a no-break space is part of a word."""
    assert parse("(1 (2 (2 8\xa01\\/2) (3 B)) (0 c))", "") == [
        Node(2, "8\xa01\\/2", -1, -1, 0),
        Node(3, "b", -1, -1, 0),
        Node(2, "", 0, 1, 1),
        Node(0, "c", -1, -1, 0),
        Node(1, "", 2, 3, 2),
    ]


@pytest.mark.parametrize(
    "text",
    ["", "good", "(good)", "(5 good)", "(2)", "(2 a b)", "(2 (2 a))", "(2 a) (2 b)", "(2 a",
     "(2 a))", "(2 (2 a) b)", "(2 (2 a) (2 b) (2 c))", "(2 " * 501 + "a" + ")" * 501, None],
)  # fmt: skip
def test_damaged_trees(text: object) -> None:
    with pytest.raises(InputError) as excinfo:
        parse(text, "tree[4]")
    assert excinfo.value.field == "tree[4]"


def test_two_classes(tmp_path: Path) -> None:
    """Neutral sentences are excluded; words that occur only in test trees are 1."""
    splits = _load(tmp_path)
    assert [split.labels.tolist() for split in (splits.train, splits.validation, splits.test)] == [
        [1, 0], [1], [0],
    ]  # fmt: skip
    # film 2 (three times), a 3 (twice), then alphabetically bad 4, good 5.
    leaf = [-1, -1, 0]
    assert _batch(splits, "train") == [
        [[5, *leaf], [2, *leaf], [0, 0, 1, 1], [0, -1, -1, -1], [0, -1, -1, -1]],
        [[3, *leaf], [4, *leaf], [0, 0, 1, 1], [2, *leaf], [0, 2, 3, 2]],
    ]
    assert _batch(splits, "validation") == [[[5, *leaf], [1, *leaf], [0, 0, 1, 1]]]
    assert splits.facts == {"vocabulary": 6}


def test_five_classes_as_words(tmp_path: Path) -> None:
    splits = _load(tmp_path, classes=5, form="words")
    assert splits.train.labels.tolist() == [3, 1, 2]
    assert _batch(splits, "train") == [[5, 2, 0], [3, 4, 2], [3, 2, 0]]


def test_phrases(tmp_path: Path) -> None:
    """Every node of a training tree that is not neutral is a row, once."""
    splits = _load(tmp_path, phrases=True, form="words")
    # "good film", "bad" and "a bad film"; "a bad" is neutral.
    assert _batch(splits, "train") == [[5, 2, 0], [4, 0, 0], [3, 4, 2]]
    assert splits.train.labels.tolist() == [1, 0, 0]
    trees = _load(tmp_path, phrases=True)
    assert [len([n for n in tree if n[3] >= 0]) for tree in _batch(trees, "train")] == [3, 1, 5]  # type: ignore[attr-defined]


@pytest.mark.slow
def test_treebank_is_read(real_data: Path) -> None:
    """SST-2 has 6,920, 872 and 1,821 sentences; words are those between the brackets."""
    splits = load(DataSpec("trees", {"file": "sst-trees.parquet"}), real_data)
    assert [len(split) for split in (splits.train, splits.validation, splits.test)] == [
        6920,
        872,
        1821,
    ]
    table = pq.read_table(real_data / "sst-trees.parquet").to_pylist()
    row = next(row for row in table if row["split"] == "test" and row["label"] != 2)
    words = re.findall(r"([^() ]+)\)", row["tree"])
    batch = splits.test.batch([0])
    assert isinstance(batch, Tensor)
    assert int((batch[0, :, 3] == 0).sum()) == len(words)
    assert splits.test.labels[0] == int(row["label"] > 2)
    assert np.bincount(splits.test.labels).tolist() == [912, 909]
