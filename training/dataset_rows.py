"""The rows of a data set with their digests, in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from recalib.core.arrays import Floats, log_probabilities
from recalib.core.label_arrays import label_log_odds
from recalib.errors import TooLargeError
from recalib.files import MEDIA_TYPES, DataSelection, LabelledData, read
from recalib.files.read_columns import named_columns
from recalib.fitting.row_digests import Digests, encode_digests, row_digests
from recalib.references import Manifest, read_referenced
from recalib.registry import Dataset, Model, Registry
from recalib.stats.logit_scale import Finding, scale_of


@dataclass(frozen=True, eq=False)
class DatasetRows:
    """All rows of a data set, or a sample of them; N rows, K classes."""

    dataset: Dataset
    data: LabelledData
    #: (N,), see `row_digests`.
    digests: Digests
    #: (K,): all rows with each label, if these rows are a sample.
    all_counts: NDArray[Any] | None = None

    @property
    def logits(self) -> Floats:
        """The input of the map (N, K)."""
        values = self.data.logits
        if self.dataset.input == "logits":
            return values
        return label_log_odds(values) if self.labels.ndim == 2 else log_probabilities(values)

    @property
    def labels(self) -> NDArray[Any]:
        """The true classes (N,), or the labels (N, K) of a multilabel model."""
        return self.data.labels


def read_rows(registry: Registry, model: Model, dataset: Dataset) -> DatasetRows:
    """Return the rows of a data set, and record their digests if it has none.

    Raises
    ------
    CorruptError: the file is damaged; or a referenced file has changed or vanished.
    NotFoundError: the file is gone.
    TooLargeError: the data set is by reference, and larger than an upload may be.
    UnavailableError: referenced files cannot be reached.
    """
    selection = DataSelection.of_classes(model.labels)
    if dataset.uri is None:
        # Formats without checksums would return damaged rows without an error.
        registry.blobs.verify(dataset.digest)
        with registry.blobs.open(dataset.digest) as file:
            format = MEDIA_TYPES[dataset.media_type]
            data = read(
                file, format=format, input=dataset.input, task=model.task, selection=selection
            )
    else:
        manifest = read_manifest(registry, dataset.digest)
        if not manifest.is_checked:
            found = f"{dataset.name}, {dataset.size_bytes} bytes by reference"
            accepted = "a data set of at most RECALIB_MAX_UPLOAD_BYTES where all rows are in memory"
            raise TooLargeError("dataset", found=found, accepted=accepted)
        data = read_referenced(manifest, dataset.input, model.task, selection)
    digests = row_digests(data.logits)
    with registry.transaction() as tx:
        tx.datasets.set_row_digests(model, dataset, encode_digests(digests))
    return DatasetRows(dataset, data, digests)


def read_segments(registry: Registry, dataset: Dataset, names: list[str]) -> dict[str, Any] | None:
    """Return columns of an uploaded file by name; None for none."""
    if not names:
        return None
    with registry.blobs.open(dataset.digest) as file:
        return named_columns(file, MEDIA_TYPES[dataset.media_type], names)


def judge_rows(registry: Registry, model: Model, rows: DatasetRows) -> list[Finding]:
    """Return why rows may not be logits of the model; keep their summary for later data sets."""
    declared = rows.dataset.input == "logits"
    scale = scale_of(rows.logits, rows.labels, declared=declared)
    with registry.transaction() as tx:
        return tx.logit_scales.judge(model, rows.dataset.name, scale)


def read_manifest(registry: Registry, digest: str) -> Manifest:
    """Return the manifest of a data set by reference.

    Raises
    ------
    CorruptError: the blob is damaged.
    NotFoundError: the blob is gone.
    """
    registry.blobs.verify(digest)
    with registry.blobs.open(digest) as file:
        return Manifest.from_bytes(file.read())
