"""Count the predictions of this process by probability and time, until the registry has the counts.

The probability is the monitored one: the confidence, or P(y = 1) of two classes (`Target`). A
request only buffers its probabilities; the monitored ones are computed for thousands of requests at
once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, probability_resemblance
from recalib.core.card import Card
from recalib.core.time_buckets import bucket_start
from recalib.core.watched_classes import watched_indices
from recalib.drift.calibration_sums import left_closed_bins
from recalib.drift.reference_histogram import reference_edges, reference_target
from recalib.drift.target import Target, monitored_probabilities, values_of_predicted_class
from recalib.registry import (
    ClassTrafficCount,
    Model,
    MonitoringSettings,
    TrafficCount,
    merge_counts,
)
from recalib.stats.groups import group_counts, group_sums
from recalib.stats.logit_scale import spread_bins
from service.serving.logit_sampling import Captures

#: Probabilities of larger responses are reduced to the monitored ones before they are buffered.
_MAX_BUFFERED_SIZE = 256
#: Buffered responses before they are counted: about a megabyte.
_MAX_BUFFERED = 4096
#: Counts kept while the registry is unavailable; a day of a busy service has fewer.
_MAX_UNSENT = 1_000_000
#: Rows of each version and interval whose logits are summarised.
_SAMPLED_ROWS = 64

#: Numbers of predictions and sums of their monitored probabilities by bin, (2, B), or of their
#: largest possible errors by predicted class, (2, K).
Totals = NDArray[np.float64]
#: Rows of probabilities (N, K), monitored ones (N, 1), or predicted classes and confidences (N, 2).
_Kind = Literal["probabilities", "monitored", "classes"]
_Key = TypeVar("_Key")


class Counts(NamedTuple):
    """Traffic that the registry does not have yet; it has these of watched classes too."""

    traffic: list[TrafficCount]
    classes: list[ClassTrafficCount]
    #: Sampled rows by the spread of their logits (`recalib.stats.logit_scale`), by model.
    spreads: dict[int, Counter[int]]


class _ServingSettings:
    """Monitoring settings of a model that serving needs."""

    def __init__(self, model: Model) -> None:
        self.count, self._labels = model.classes, model.labels
        self.declare(model.monitoring)

    def declare(self, monitoring: MonitoringSettings) -> None:
        self.capture, self.cohort_seconds = monitoring.capture, monitoring.cohort_seconds
        self.segments = {name: number for number, name in enumerate(monitoring.segments, 1)}
        #: Indices of the watched classes.
        self.classes: tuple[int, ...] = ()
        if monitoring.classes:
            self.classes = watched_indices(monitoring.classes, self.count, self._labels)


@dataclass(eq=False)
class Stream:
    """Traffic of one version. Thread-safe."""

    traffic: Traffic
    settings: _ServingSettings
    model: int
    version: int
    edges: Any
    target: Target

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        #: By segment, start of the bucket and kind of rows: arrays of a list have one width.
        self._buffer: dict[tuple[int, int, _Kind], list[Floats]] = {}
        self._buffered = 0
        self._totals: dict[tuple[int, int], Totals] = {}
        self._class_totals: dict[int, Totals] = {}
        #: A few rows of logits of this interval.
        self._sample: Floats | None = None

    def segment_of(self, name: str) -> int:
        """Return the number of a segment; 0 for an undeclared segment."""
        return self.settings.segments.get(name, 0)

    def keep(self, ids: Sequence[str | None], logits: Floats) -> None:
        """Capture the logits of a share of predictions, as the settings of the model require."""
        if self.settings.capture > 0:
            self.traffic.captures.keep(self.model, self.settings.capture, ids, logits)

    def add(self, probabilities: Floats, segment: int = 0) -> None:
        """Count a batch of predictions at the current time.

        Parameters
        ----------
        probabilities: of the response, (N, K); must not change afterwards.
        """
        kind: _Kind = "probabilities"
        if probabilities.size > _MAX_BUFFERED_SIZE:
            kind, probabilities = self._reduce(probabilities)
        self._buffer_rows(kind, probabilities, segment)

    def add_drawn(
        self, drawn: NDArray[np.integer[Any]], confidences: Sequence[float], segment: int = 0
    ) -> None:
        """Count a multilabel batch at the current time, each row by its drawn label.

        Parameters
        ----------
        drawn: label of each row, (N,).
        confidences: its probability, (N,).
        """
        column = np.array(confidences)
        if self.settings.classes:
            self._buffer_rows("classes", np.column_stack([drawn, column]), segment)
        else:
            self._buffer_rows("monitored", column[:, None], segment)

    def sample(self, logits: Floats) -> None:
        """Keep the first few rows of each interval: what the model's logits look like."""
        if self._sample is None:
            self._sample = logits[:_SAMPLED_ROWS].copy()
            self.traffic.note(self)

    def take_spreads(self) -> list[int]:
        """Remove the sampled rows; return their spreads, unless they look like probabilities."""
        sample, self._sample = self._sample, None
        if sample is None or probability_resemblance(sample):
            return []
        return spread_bins(sample).tolist()

    def _buffer_rows(self, kind: _Kind, rows: Floats, segment: int) -> None:
        seconds = self.traffic.bucket_seconds, self.settings.cohort_seconds
        key = (segment, bucket_start(time.time(), *seconds), kind)
        with self._lock:
            buffer = self._buffer.get(key)
            if buffer is None:
                buffer = self._buffer[key] = []
                self.traffic.note(self)
            buffer.append(rows)
            self._buffered += 1
            if self._buffered >= _MAX_BUFFERED:
                self._fold()

    def take(self) -> tuple[dict[tuple[int, int], Totals], dict[tuple[int, int], Totals]]:
        """Remove and return totals (2, B) by segment and bucket, and (2,) by class and bucket."""
        with self._lock:
            self._fold()
            totals, self._totals = self._totals, {}
            class_totals, self._class_totals = self._class_totals, {}
        watched = self.settings.classes
        by_class = {
            (index, bucket): values[:, index]
            for bucket, values in class_totals.items()
            for index in watched
            if values[0, index]
        }
        return totals, by_class

    def _reduce(self, probabilities: Floats) -> tuple[_Kind, Floats]:
        """Return the monitored (N, 1); predicted classes and confidences if some are watched."""
        if not self.settings.classes:
            monitored = monitored_probabilities(probabilities, self.target)
            return "monitored", monitored.astype(probabilities.dtype, copy=False)[:, None]
        predicted = probabilities.argmax(axis=1)
        confidences = probabilities[np.arange(len(predicted)), predicted]
        return "classes", np.column_stack([predicted, confidences])

    def _fold(self) -> None:
        buffer, self._buffer, self._buffered = self._buffer, {}, 0
        for (segment, bucket, kind), batches in buffer.items():
            # One NumPy call for all batches: its overhead is that of thousands of rows.
            rows = np.concatenate(batches)
            if kind == "probabilities":
                kind, rows = self._reduce(rows)
            monitored = rows[:, -1].astype(np.float64)
            if kind == "classes":
                errors = np.maximum(monitored, 1 - monitored)
                predicted = rows[:, 0].astype(np.intp)
                _add(self._class_totals, bucket, predicted, errors, self.settings.count)
                monitored = values_of_predicted_class(monitored, predicted, self.target)
            bins = left_closed_bins(self.edges, monitored)
            _add(self._totals, (segment, bucket), bins, monitored, len(self.edges) + 1)


def _add(
    totals: dict[_Key, Totals], key: _Key, parts: NDArray[np.intp], values: Floats, count: int
) -> None:
    """Add the number and the sum of values (N,) of each part, a number below `count`."""
    added: Totals = np.array([group_counts(parts, count), group_sums(parts, values, count)])
    before = totals.get(key)
    totals[key] = added if before is None else before + added


class Traffic:
    """Traffic of this process that the registry does not have yet.

    Parameters
    ----------
    bucket_seconds: largest length of a bucket of counts; equal in all processes.
    """

    def __init__(self, bucket_seconds: int = 300) -> None:
        self.bucket_seconds = bucket_seconds
        self.captures = Captures()
        self._lock = threading.Lock()
        self._settings: WeakValueDictionary[int, _ServingSettings] = WeakValueDictionary()
        #: Streams with buffered data; they outlive their calibrators until `take`.
        self._streams: set[Stream] = set()
        self._unsent = Counts([], [], {})

    def stream(self, model: Model, version: int, card: Card) -> Stream:
        """Return the stream of a version."""
        with self._lock:
            settings = self._settings.get(model.id)
            if settings is None:
                settings = self._settings[model.id] = _ServingSettings(model)
        edges, target = reference_edges(card), reference_target(card)
        return Stream(self, settings, model.id, version, edges, target)

    def note(self, stream: Stream) -> None:
        """Register a stream with buffered data."""
        with self._lock:  # once for each stream and flush
            self._streams.add(stream)

    def declare(self, declared: Mapping[int, MonitoringSettings]) -> None:
        """Update the settings of models, by their ids."""
        for number, monitoring in declared.items():
            settings = self._settings.get(number)
            if settings is not None:
                settings.declare(monitoring)

    def take(self) -> Counts:
        """Remove and return all counts; a caller that cannot write them calls `give_back`."""
        with self._lock:
            streams, self._streams = self._streams, set()
            (traffic, classes, spreads), self._unsent = self._unsent, Counts([], [], {})
        for stream in streams:
            if sampled := stream.take_spreads():
                spreads.setdefault(stream.model, Counter()).update(sampled)
            totals, class_totals = stream.take()
            for (segment, bucket), (counts, sums) in totals.items():
                key = (stream.model, stream.version, bucket, segment)
                traffic += [
                    TrafficCount(*key, bin, int(count), int(count), confidence_sum)
                    for bin, (count, confidence_sum) in enumerate(
                        zip(counts.tolist(), sums.tolist(), strict=True)
                    )
                    if count
                ]
            for (index, bucket), (count, error_sum) in class_totals.items():
                key = (stream.model, stream.version, bucket, index)
                classes.append(ClassTrafficCount(*key, int(count), float(error_sum)))
        return Counts(merge_counts(traffic), merge_counts(classes), spreads)

    def give_back(self, counts: Counts) -> int:
        """Put counts back; return the number of predictions for which there is no room."""
        with self._lock:
            traffic = merge_counts([*self._unsent.traffic, *counts.traffic])
            classes = merge_counts([*self._unsent.classes, *counts.classes])
            # Sampled rows are lost: the next interval has others.
            self._unsent = Counts(traffic[:_MAX_UNSENT], classes[:_MAX_UNSENT], {})
        return sum(count.predictions for count in traffic[_MAX_UNSENT:])
