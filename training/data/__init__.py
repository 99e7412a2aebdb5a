"""Training data. A new source needs one file and one line in `load.SOURCES`.

>>> splits = load(DataSpec("images", {"train": "a.parquet", "test": "b.parquet"}, validation=5000))
>>> inputs = splits.train.batch([0, 1, 2])
>>> labels = torch.from_numpy(splits.train.labels[:3])
>>> inputs, labels = augmentation("crop_flip")(inputs, labels, torch.Generator())
"""

from __future__ import annotations

from training.data.augmentation import AUGMENTATIONS, Augmentation, augmentation
from training.data.base import Source
from training.data.load import SOURCES, DataSpec, load
from training.data.split import Batch, Indices, Inputs, Split, Splits

__all__ = [
    "AUGMENTATIONS",
    "SOURCES",
    "Augmentation",
    "Batch",
    "DataSpec",
    "Indices",
    "Inputs",
    "Source",
    "Split",
    "Splits",
    "augmentation",
    "load",
]
