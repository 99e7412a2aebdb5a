"""Data sets that are too large for memory: read in parts, on the cluster of the settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

import recalib.scale
from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats, Integers
from recalib.core.card import DataSummary
from recalib.core.executors import Workers, open_workers
from recalib.files import MEDIA_TYPES, DataSelection, Input, LabelledData
from recalib.files.fragments import Fragment, list_fragments
from recalib.fitting.problem import Progress
from recalib.fitting.row_digests import Digests, row_digests
from recalib.metrics.streaming_changes import PairedMetrics
from recalib.references import check_content, unchanged
from recalib.registry import Dataset, Model
from recalib.scale.evaluate import labelled_chunks
from recalib.scale.paired import paired_metrics
from recalib.scale.row_sample import RowSample, max_sample_rows, sample_shares
from recalib.stats.groups import group_counts
from training.dataset_rows import DatasetRows, read_manifest
from training.job_context import JobContext

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class ClusterPolicy:
    """Which data sets are read in parts, and where.

    Parameters
    ----------
    cluster: as in `recalib.core.executors`; None: uploads are read into memory, and large data sets
        by reference in parts by this process.
    min_bytes: data sets of more bytes are large, and those by reference that are larger than an
        upload may be.
    """

    cluster: str | None = None
    min_bytes: int = 0

    def is_large(self, model: Model, dataset: Dataset) -> bool:
        """Return whether a data set is read in parts; one of a multilabel model never is."""
        is_divisible = self.cluster is not None or dataset.uri is not None
        exceeds = is_divisible and dataset.size_bytes > self.min_bytes
        return (exceeds or dataset.has_unchecked_rows) and model.task == "multiclass"

    def divides(self, size_bytes: int) -> bool:
        """Return whether a file of this size is read in parts."""
        return self.cluster is not None and size_bytes > self.min_bytes


#: No upload is read in parts.
IN_MEMORY = ClusterPolicy(min_bytes=sys.maxsize)


class LargeDataset:
    """A data set in parts; `open_large` opens one."""

    def __init__(
        self, model: Model, dataset: Dataset, workers: Workers, fragments: list[Fragment]
    ) -> None:
        self._model, self._dataset, self._workers = model, dataset, workers
        self._fragments = fragments

    def fit(
        self, map: str, objective: str, options: dict[str, Any], progress: Progress
    ) -> Calibrator:
        """Return the fit on all rows, with metrics; see `recalib.scale.fit`.

        Raises
        ------
        InputError: the map or the objective needs all rows in memory.
        """
        dataset = self._dataset
        calibrator = recalib.scale.fit(
            self._fragments,
            map,
            objective,
            input=dataset.input,
            measure=True,
            cluster=self._workers,
            progress=progress,
            **options,
        )
        data = DataSummary(rows=dataset.rows, digest=dataset.digest, name=dataset.name)
        card = msgspec.structs.replace(calibrator.card, labels=self._model.labels, data=data)
        return Calibrator(calibrator.parameters, card)

    def sample(self) -> DatasetRows:
        """Return evenly spaced rows: 20,000 at most, and 4,000,000 numbers at most."""
        dataset, sample = self._dataset, RowSample(max_sample_rows(self._dataset.classes))
        tasks = zip(sample_shares(self._fragments), self._fragments, strict=True)
        all_counts = np.zeros(dataset.classes, np.int64)
        for part in self._map(partial(_sample, dataset.input), tasks):
            sample.add(part.values, part.labels, rows=int(part.counts.sum()), step=part.step)
            all_counts += part.counts
        logits, labels, _ = sample.rows()
        data = LabelledData(logits, labels)
        return DatasetRows(dataset, data, row_digests(data.logits), all_counts)

    def contains(self, digests: Digests) -> NDArray[np.bool_]:
        """Return which digests (N,) are those of rows of this data set."""
        contained = np.zeros(len(digests), bool)
        work = partial(_contains, self._dataset.input, digests)
        for part in self._map(work, self._fragments):
            contained |= part
        return contained

    def compare(self, before: Calibrator | None, after: Calibrator | None) -> PairedMetrics:
        """Return metrics and changes of two calibrators on all rows; None: without one."""
        pair = (before, after)
        return paired_metrics(self._workers, self._fragments, self._dataset.input, pair)

    def _map(self, work: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield a function of the task of each fragment, in their order."""
        return self._workers.map(work, tasks, batch=self._workers.batch(len(self._fragments)))


class _Sample(NamedTuple):
    """Every `step`-th row of a fragment as the file has it, and all its rows with each label."""

    values: Floats
    labels: Integers
    step: int
    #: (K,).
    counts: NDArray[np.int64]


def _sample(kind: Input, task: tuple[float, Fragment]) -> _Sample:
    share, fragment = task
    with fragment.open(kind) as file:
        sample = RowSample(max_sample_rows(file.classes, share))
        counts = np.zeros(file.classes, np.int64)
        for values, labels, _ in labelled_chunks(file):
            sample.add(values, labels, rows=len(labels))
            counts += group_counts(labels, file.classes)
    values, labels, _ = sample.candidates()
    return _Sample(values, labels, sample.step, counts)


def _contains(kind: Input, digests: Digests, fragment: Fragment) -> NDArray[np.bool_]:
    contained = np.zeros(len(digests), bool)
    with fragment.open(kind) as file:
        for values, _, _ in labelled_chunks(file):
            contained |= np.isin(digests, row_digests(values))
    return contained


@contextmanager
def open_large(
    context: JobContext, model: Model, dataset: Dataset, policy: ClusterPolicy
) -> Iterator[LargeDataset]:
    """Open a large data set on the cluster. A cancelled job ends after the parts that run.

    Raises
    ------
    CorruptError: the file is damaged; or a referenced file has changed or vanished, also during the
        block.
    UnavailableError: the cluster or the referenced files cannot be reached.
    """
    blobs, selection = context.registry.blobs, DataSelection.of_classes(model.labels)
    if dataset.uri is None:
        # Formats without checksums would return damaged rows without an error.
        blobs.verify(dataset.digest)
        location = blobs.location(dataset.digest)
        format = MEDIA_TYPES[dataset.media_type]
        fragments = list_fragments(location, format=format, selection=selection)
        with job_workers(context, policy.cluster) as workers:
            yield LargeDataset(model, dataset, workers, fragments)
        return
    manifest = read_manifest(context.registry, dataset.digest)
    with unchanged(manifest), job_workers(context, policy.cluster) as workers:
        for _ in workers.map(check_content, manifest.files):
            pass  # the first error ends it
        yield LargeDataset(model, dataset, workers, manifest.fragments(selection))


@contextmanager
def job_workers(context: JobContext, cluster: str | None) -> Iterator[Workers]:
    """Open workers whose tasks are cancelled with the job; see `open_workers`."""
    with open_workers(cluster) as workers:
        yield _JobWorkers(workers, context)


class _JobWorkers(Workers):
    """Workers whose tasks are cancelled with the job."""

    def __init__(self, workers: Workers, context: JobContext) -> None:
        super().__init__(workers.executor, workers.count)
        self._context = context

    def map(self, function: Callable[[T], R], items: Iterable[T], *, batch: int = 1) -> Iterator[R]:
        for result in super().map(function, items, batch=batch):
            self._context.check_cancelled()
            yield result
