"""The rows of a data set with their digests, in memory."""

from __future__ import annotations

from dataclasses import dataclass

from recalib.arrays import Floats, Integers, log_probabilities
from recalib.files import MEDIA_TYPES, LabelledData, read
from recalib.fitting.row_digests import Digests, encode_digests, row_digests
from recalib.registry import Dataset, Model, Registry

__all__ = ["DatasetRows", "read_rows"]


@dataclass(frozen=True, eq=False)
class DatasetRows:
    """All rows of a data set; N rows, K classes."""

    dataset: Dataset
    data: LabelledData
    #: (N,), see `row_digests`.
    digests: Digests

    @property
    def logits(self) -> Floats:
        """The input of the map (N, K)."""
        values = self.data.logits
        return values if self.dataset.input == "logits" else log_probabilities(values)

    @property
    def labels(self) -> Integers:
        """The true classes (N,)."""
        return self.data.labels


def read_rows(registry: Registry, model: Model, dataset: Dataset) -> DatasetRows:
    """Return the rows of a data set, and record their digests if it has none.

    Raises
    ------
    CorruptError: the file is damaged.
    NotFoundError: the file is gone.
    """
    # Formats without checksums would return damaged rows without an error.
    registry.blobs.verify(dataset.digest)
    with registry.blobs.open(dataset.digest) as file:
        data = read(file, format=MEDIA_TYPES[dataset.media_type], input=dataset.input)
    digests = row_digests(data.logits)
    with registry.transaction() as tx:
        tx.datasets.set_row_digests(model, dataset.name, encode_digests(digests))
    return DatasetRows(dataset, data, digests)
