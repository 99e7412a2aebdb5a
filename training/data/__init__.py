"""Training data. A new source needs one file and one line in `load.SOURCES`.

>>> splits = load(DataSpec("images", {"train": "a.parquet", "test": "b.parquet"}, validation=5000))
>>> inputs = splits.train.batch([0, 1, 2])
>>> labels = torch.from_numpy(splits.train.labels[:3])
"""

from __future__ import annotations

from training.data.base import Source
from training.data.load import SOURCES, DataSpec, load
from training.data.split import Batch, Indices, Inputs, Split, Splits

__all__ = [
    "SOURCES",
    "Batch",
    "DataSpec",
    "Indices",
    "Inputs",
    "Source",
    "Split",
    "Splits",
    "load",
]
