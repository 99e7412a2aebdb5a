"""Load the data of a recipe: read, subsample, split and check rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.core.options import configure
from recalib.errors import InputError
from training.data.arrays import Arrays
from training.data.base import Files, Source
from training.data.datasets import Datasets
from training.data.images import Images
from training.data.long_tail import long_tailed
from training.data.scenes import Scenes
from training.data.shapes import Shapes
from training.data.split import Split, Splits
from training.data.text import Text
from training.data.trees import Trees

SOURCES: dict[str, type[Source]] = {
    "images": Images,
    "arrays": Arrays,
    "dataset": Datasets,
    "text": Text,
    "trees": Trees,
    "shapes": Shapes,
    "scenes": Scenes,
}


#: Random stream of the choice of test rows.
_TEST_STREAM = 1


class DataSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows to train on, to choose by and to test on.

    source: a key of `SOURCES`.
    options: that source's options, such as the names of its files.
    validation: rows taken from the training rows for validation, a number, or a share where below
        1; not allowed if the source has validation rows.
    stratified: whether each class gives its share, rounded by largest remainders, or chance
        decides.
    test: rows taken from the training rows for testing, as `validation`, before it; required if
        the source has no test rows, and not allowed otherwise.
    seed: of these choices, of the long tail and of `rows`.
    long_tail: the ratio of the last class's rows to the first's, paper 003 eq. 16; thins out the
        rows that training and validation share, never the test's.
    rows: number of training rows to keep, drawn at random; for a small budget.
    """

    source: str
    options: dict[str, Any] = {}
    validation: float | None = None
    test: float | None = None
    stratified: bool = True
    seed: int = 0
    long_tail: float | None = None
    rows: int | None = None


def load(spec: DataSpec, folder: Path = Path(), *, confined: bool = False) -> Splits:
    """Return the splits that `spec` describes; the same spec and files give the same digest.

    Parameters
    ----------
    folder: base of relative file names.
    confined: whether to refuse files outside `folder`, as for files that a request names.

    Raises
    ------
    InputError: a file that is missing, outside `folder`, damaged (with the row) or without a needed
        column; labels out of range; overlapping splits; too few rows.
    """
    if spec.seed < 0:
        raise InputError("data.seed", found=f"{spec.seed}", accepted="0 or more")
    source = configure(SOURCES, spec.source, spec.options, field="data.source")
    parts = source.read(Files(folder, confined))
    train, test = _held_out(spec, "test", parts.train, parts.test, _TEST_STREAM)
    train = _thin_classes(spec, train, parts.classes)
    train, validation = _held_out(spec, "validation", train, parts.validation)
    if spec.rows is not None:
        train = _fewer(train, spec.rows, spec.seed)
    for name, split in (("train", train), ("validation", validation), ("test", test)):
        if not len(split):
            raise InputError(f"data.{name}", found="no rows", accepted="at least one")
    repeated = _check_overlap(train, validation, test)
    return Splits(
        train,
        validation,
        test,
        parts.classes,
        parts.facts,
        repeated,
        parts.names,
        parts.ignore_index,
    )


def _thin_classes(spec: DataSpec, train: Split, classes: int) -> Split:
    """Return the rows of the long tail; all rows without one."""
    if spec.long_tail is None:
        return train
    if train.labels.ndim > 1:
        raise InputError("data.long_tail", found="a label for every place", accepted="none")
    return train.subset(long_tailed(train.labels, classes, spec.long_tail, spec.seed))


def _held_out(
    spec: DataSpec,
    name: Literal["validation", "test"],
    train: Split,
    split: Split | None,
    *stream: int,
) -> tuple[Split, Split]:
    """Return the training rows, and the rows of `name`: of the source, or of the training rows."""
    field, size = f"data.{name}", getattr(spec, name)
    if split is not None:
        if size is not None:
            found = f"{size:g}, and {len(split)} {name} rows of the source"
            raise InputError(field, found=found, accepted="one of the two")
        return train, split
    if size is None:
        raise InputError(field, found="nothing", accepted="rows, or a share below 1")
    count = _count(field, size, len(train))
    seed = [spec.seed, *stream]
    if spec.stratified:
        if train.labels.ndim > 1:
            raise InputError(
                "data.stratified", found="a label for every place", accepted="stratified = false"
            )
        rows = _draw_stratified(train.labels, count, seed)
    else:
        rows = np.random.default_rng(seed).permutation(len(train))[:count]
    held_out = np.zeros(len(train), dtype=bool)
    held_out[rows] = True
    return train.subset(np.flatnonzero(~held_out)), train.subset(np.flatnonzero(held_out))


def _count(field: str, size: float, rows: int) -> int:
    count = size * rows if size < 1 else size
    if not (math.isfinite(size) and size > 0 and (size < 1 or size == int(size))):
        found = f"{size:g}"
        raise InputError(field, found=found, accepted="a number of rows, or a share below 1")
    if not 1 <= round(count) < rows:
        found = f"{size:g} of {rows} rows"
        raise InputError(field, found=found, accepted=f"1 to {rows - 1} rows")
    return round(count)


def _draw_stratified(
    labels: NDArray[np.int64], count: int, seed: Sequence[int]
) -> NDArray[np.int64]:
    """Return `count` rows in proportion to the classes, rounded by largest remainders."""
    classes, sizes = np.unique(labels, return_counts=True)
    exact = sizes * count / len(labels)
    takes = np.floor(exact).astype(np.int64)
    # Ties go to the smaller class number, so that the result is deterministic.
    for index in np.argsort(-(exact - takes), kind="stable")[: count - int(takes.sum())]:
        takes[index] += 1
    rng = np.random.default_rng(seed)
    rows = [
        rng.permutation(np.flatnonzero(labels == label))[:take]
        for label, take in zip(classes, takes, strict=True)
    ]
    return np.concatenate(rows)


def _fewer(train: Split, rows: int, seed: int) -> Split:
    if not 1 <= rows <= len(train):
        raise InputError("data.rows", found=f"{rows}", accepted=f"1 to {len(train)}")
    return train.subset(np.sort(np.random.default_rng(seed).permutation(len(train))[:rows]))


def _check_overlap(train: Split, validation: Split, test: Split) -> int:
    """Return the number of test rows among the training rows; refuse splits that overlap by half.

    Published data contain a few duplicates; they are counted. A split of which at least half is
    also in another split is a mistake.
    """
    keys = {"train": train.keys(), "validation": validation.keys(), "test": test.keys()}
    repeated = 0
    for first, second in (("train", "validation"), ("train", "test"), ("validation", "test")):
        shared = int(np.isin(keys[second], keys[first]).sum())
        if 2 * shared >= len(keys[second]):
            raise InputError(
                f"data.{second}",
                found=f"{shared} of {len(keys[second])} rows that are in {first} as well",
                accepted="splits that do not overlap",
            )
        if (first, second) == ("train", "test"):
            repeated = shared
    return repeated
