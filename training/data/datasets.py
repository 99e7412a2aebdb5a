"""Map-style data sets of the user, as torch's `Dataset`."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.options import check_option
from recalib.errors import InputError
from training.data.base import Files, Parts, Source
from training.data.classes import Rows, check_classes, parts_of
from training.data.encoded import ImageRows
from training.data.images import image_rows
from training.data.pixels import Normalisation
from training.data.split import Batch, Inputs, keys_of
from training.imported import import_function

if TYPE_CHECKING:
    from torch import Generator

#: Seeds of random items.
_MAX_SEED = 2**31


@dataclass
class Datasets(Source):
    """Map-style data sets of a function or a class of the user: `len` and items by position.

    An item is (input, label), or a dictionary with `label`. An input that is an image of Pillow
    becomes float32 (3, H, W) as in `Images`; other inputs are arrays or tensors, a dictionary or a
    tuple of them, and become a batch by torch's `default_collate`, with float32 for float64. Labels
    are integers, or names.

    Arrays and tensors may be random, by the global generators of `random`, NumPy and torch: these
    are seeded for each item, by the seed of the recipe, the epoch and the step. For images of
    Pillow, and for validation and test rows, the seed is the position.

    Options: `factory`, `package.module:function` or `file.py:function`; `train` and optionally
    `test` and `validation`, its arguments for each split; `label`, the key of labels in items that
    are dictionaries; `size`, `normalise` and `memory`, for images of Pillow, as in `Images`;
    `classes`, the number of classes or their names in order, by default the attribute `classes` of
    the training data set, or from its labels; `ignore_index`, the label of void pixels in labels
    (H, W).
    """

    factory: str
    train: dict[str, Any] = field(default_factory=dict)
    test: dict[str, Any] | None = None
    validation: dict[str, Any] | None = None
    label: str = "label"
    size: int | None = None
    normalise: Normalisation = "standardise"
    memory: int = 2**31
    classes: int | list[str] | None = None
    ignore_index: int | None = None

    def __post_init__(self) -> None:
        check_classes(self.classes)
        if self.size is not None:
            check_option("size", self.size, self.size >= 1, "1 or more")
        check_option("memory", self.memory, self.memory >= 0, "0 or more")

    def read(self, files: Files) -> Parts:
        make = import_function(self.factory, "data.options.factory")
        datasets = self.of_splits(
            lambda name: _Dataset(_create(make, getattr(self, name), name), self.label, name)
        )
        names = datasets["train"].class_names()
        if datasets["train"].has_images:
            rows = image_rows(datasets, self.size, self.normalise, self.memory)
            return parts_of(rows, {"channels": 3}, self.classes, names, self.ignore_index)
        rows = {
            name: Rows(Items(dataset), dataset.labels, dataset.field)
            for name, dataset in datasets.items()
        }
        facts = _facts(rows["train"].inputs)
        return parts_of(rows, facts, self.classes, names, self.ignore_index)


def _create(make: Callable[..., Any], arguments: Mapping[str, Any], name: str) -> Any:
    """Return the data set of a split."""
    field = f"data.options.{name}"
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        accepted = "the arguments of the factory"
        raise InputError(field, found=str(error), accepted=accepted) from None
    with _errors(field, "arguments for which the factory returns a data set"):
        dataset = make(**arguments)
    if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) or not len(dataset):
        is_empty = hasattr(dataset, "__len__") and not len(dataset)
        found = f"{type(dataset).__name__}{' without items' if is_empty else ''}"
        accepted = "a map-style data set, with a length and items by position"
        raise InputError(field, found=found, accepted=accepted)
    return dataset


class _Dataset(ImageRows):
    """A data set of the user; every item is read once for its label."""

    def __init__(self, dataset: Any, label: str, name: str) -> None:
        self._dataset, self._label = dataset, label
        self._name = type(dataset).__name__
        self.field = f"{self._name}, {name}: label"
        with _seeds_restored():
            first, _ = self._item(0)
            labels = [self._item(row)[1] for row in range(len(dataset))]
        # Not by an import of Pillow, which other data sets do not need.
        self.has_images = any(kind.__module__ == "PIL.Image" for kind in type(first).__mro__)
        try:
            self.labels = np.array([np.asarray(label) for label in labels])
        except ValueError as error:
            accepted = "labels of one shape"
            raise InputError(self.field, found=str(error), accepted=accepted) from None

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, row: int) -> object:
        return self.items([row], [row])[0]

    def describe(self, row: int) -> str:
        return f"{self._name}[{row}]"

    def items(self, rows: Sequence[int], seeds: Sequence[int]) -> list[Any]:
        """Return the inputs of these rows; each seed determines a random input."""
        with _seeds_restored():
            return [self._item(row, seed)[0] for row, seed in zip(rows, seeds, strict=True)]

    def class_names(self) -> list[str] | None:
        """Return the attribute `classes`, as data sets of torchvision have, if it lists names."""
        names: Any = getattr(self._dataset, "classes", None)
        is_list = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        return list(names) if is_list and len(names) > 1 else None

    def _item(self, row: int, seed: int | None = None) -> tuple[Any, Any]:
        """Return the input and the label of a row; the caller restores the generators."""
        import torch

        seed = row if seed is None else seed
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the generator that the user's code may use
        torch.manual_seed(seed)
        with _errors(self.describe(row), "an item"):
            item = self._dataset[row]
        if isinstance(item, Mapping) and self._label in item:
            inputs = {key: value for key, value in item.items() if key != self._label}
            # A single input, such as an image, needs no name.
            return next(iter(inputs.values())) if len(inputs) == 1 else inputs, item[self._label]
        if isinstance(item, (tuple, list)) and len(item) > 1:
            *parts, label = item
            return parts[0] if len(parts) == 1 else tuple(parts), label
        found = f"{type(item).__name__}"
        accepted = f"(input, label), or a dictionary with {self._label!r}"
        raise InputError(self.describe(row), found=found, accepted=accepted)


class Items(Inputs):
    """Items of a data set of the user: arrays, tensors, or a dictionary or a tuple of them."""

    def __init__(self, dataset: _Dataset) -> None:
        self._dataset = dataset
        self._keys: NDArray[np.bytes_] | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        return self._collate(rows.tolist(), rows.tolist())

    def training_batch(self, rows: NDArray[np.int64], generator: Generator) -> Batch:
        import torch

        seeds = torch.randint(_MAX_SEED, (len(rows),), generator=generator)
        return self._collate(rows.tolist(), seeds.tolist())

    def keys(self) -> NDArray[np.bytes_]:
        if self._keys is None:
            batches = (self.batch(np.array([row])) for row in range(len(self)))
            self._keys = keys_of(_content(batch) for batch in batches)
        return self._keys

    def _collate(self, rows: list[int], seeds: list[int]) -> Batch:
        from torch.utils.data import default_collate

        inputs = self._dataset.items(rows, seeds)
        try:
            batch = default_collate(inputs)
        except (TypeError, RuntimeError, ValueError) as error:
            found = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise InputError(
                self._dataset.describe(rows[0]),
                found=found,
                accepted="arrays or tensors of one shape",
            ) from error
        return _with_float32(tuple(batch) if isinstance(batch, list) else batch)


@contextmanager
def _errors(field: str, accepted: str) -> Iterator[None]:
    """Translate any error of the user's code."""
    try:
        yield
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
        raise InputError(field, found=found, accepted=accepted) from error


@contextmanager
def _seeds_restored() -> Iterator[None]:
    """Restore the generators of `random`, NumPy and torch afterwards."""
    import torch

    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002


def _with_float32(batch: Any) -> Any:
    """Return a batch with float32 instead of float64, NumPy's default."""
    if isinstance(batch, Mapping):
        return {name: _with_float32(part) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_with_float32(part) for part in batch)
    import torch

    return batch.float() if batch.dtype == torch.float64 else batch


def _content(batch: Any) -> bytes:
    if isinstance(batch, Mapping):
        return b"".join(key.encode() + _content(batch[key]) for key in sorted(batch))
    if isinstance(batch, tuple):
        return b"".join(_content(part) for part in batch)
    import torch

    return batch.numpy().tobytes() if isinstance(batch, torch.Tensor) else repr(batch).encode()


def _facts(inputs: Inputs) -> dict[str, int]:
    """Return the number of features, and of channels of images, if an input is one tensor."""
    import torch

    batch = inputs.batch(np.zeros(1, dtype=np.int64))
    if not isinstance(batch, torch.Tensor):
        return {}
    facts = {"features": batch[0].numel()}
    return facts | {"channels": batch.shape[1]} if batch.ndim == 4 else facts
