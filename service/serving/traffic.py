"""Count the predictions of this process by confidence and time, until the registry has the counts.

A request only buffers its probabilities; confidences are computed for thousands of requests at
once. `python -m benchmarks.traffic` measures both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.card import Card
from recalib.drift.calibration_sums import bin_indices
from recalib.drift.reference_histogram import reference_edges
from recalib.registry import Model, MonitoringConfig, TrafficCount, merge_counts
from service.serving.logit_sampling import Captures

__all__ = ["Stream", "Traffic"]

#: Probabilities of larger responses are reduced to confidences before they are buffered.
_MAX_BUFFERED_SIZE = 256
#: Buffered responses before they are counted: about a megabyte.
_MAX_BUFFERED = 4096
#: Counts kept while the registry is unavailable; a day of a busy service has fewer.
_MAX_UNSENT = 1_000_000

#: Numbers of predictions and sums of their confidences by bin, (2, B).
Totals = NDArray[np.float64]


class _ServingSettings:
    """Monitoring settings of a model that serving needs."""

    def __init__(self, monitoring: MonitoringConfig) -> None:
        self.declare(monitoring)

    def declare(self, monitoring: MonitoringConfig) -> None:
        self.capture = monitoring.capture
        self.segments = {name: number for number, name in enumerate(monitoring.segments, 1)}


class Stream:
    """Traffic of one version. Thread-safe."""

    def __init__(
        self, traffic: Traffic, settings: _ServingSettings, model: int, version: int, edges: Any
    ) -> None:
        self.model = model
        self.version = version
        self._traffic = traffic
        self._settings = settings
        self._edges = edges
        self._lock = threading.Lock()
        #: By segment, bucket, and whether they are confidences: arrays of a list have one width.
        self._buffer: dict[tuple[int, int, bool], list[Floats]] = {}
        self._buffered = 0
        self._totals: dict[tuple[int, int], Totals] = {}

    def segment_of(self, name: str) -> int:
        """Return the number of a segment; 0 for an undeclared segment."""
        return self._settings.segments.get(name, 0)

    def keep(self, ids: Sequence[str | None], logits: Floats) -> None:
        """Capture the logits of a share of predictions, as the settings of the model require."""
        if self._settings.capture > 0:
            self._traffic.captures.keep(self.model, self._settings.capture, ids, logits)

    def add(self, probabilities: Floats, segment: int = 0) -> None:
        """Count a batch of predictions at the current time.

        Parameters
        ----------
        probabilities: of the response, (N, K); must not change afterwards.
        """
        large = probabilities.size > _MAX_BUFFERED_SIZE
        if large:
            probabilities = np.maximum.reduce(probabilities, axis=1, keepdims=True)
        key = (segment, int(time.time() // self._traffic.bucket_seconds), large)
        with self._lock:
            buffer = self._buffer.get(key)
            if buffer is None:
                buffer = self._buffer[key] = []
                self._traffic.note(self)
            buffer.append(probabilities)
            self._buffered += 1
            if self._buffered >= _MAX_BUFFERED:
                self._fold()

    def take(self) -> dict[tuple[int, int], Totals]:
        """Remove and return totals (2, B) by segment and bucket."""
        with self._lock:
            self._fold()
            totals, self._totals = self._totals, {}
        return totals

    def _fold(self) -> None:
        buffer, self._buffer, self._buffered = self._buffer, {}, 0
        for (segment, bucket, _), batches in buffer.items():
            # One NumPy call for all batches: its overhead is that of thousands of rows.
            confidences = np.concatenate(batches).max(axis=1)
            where, bins = bin_indices(self._edges, confidences), len(self._edges) + 1
            totals: Totals = np.array(
                [np.bincount(where, minlength=bins), np.bincount(where, confidences, bins)],
                np.float64,
            )
            before = self._totals.get((segment, bucket))
            self._totals[segment, bucket] = totals if before is None else before + totals


class Traffic:
    """Traffic of this process that the registry does not have yet.

    Parameters
    ----------
    bucket_seconds: length of a bucket of counts; equal in all processes, and a divisor of the
        length of windows.
    """

    def __init__(self, bucket_seconds: int = 300) -> None:
        self.bucket_seconds = bucket_seconds
        self.captures = Captures()
        self._lock = threading.Lock()
        self._settings: WeakValueDictionary[int, _ServingSettings] = WeakValueDictionary()
        #: Streams with buffered data; they outlive their calibrators until `take`.
        self._streams: set[Stream] = set()
        self._unsent: dict[tuple[int, ...], TrafficCount] = {}

    def stream(self, model: Model, version: int, card: Card) -> Stream:
        """Return the stream of a version."""
        with self._lock:
            settings = self._settings.get(model.id)
            if settings is None:
                settings = self._settings[model.id] = _ServingSettings(model.monitoring)
        return Stream(self, settings, model.id, version, reference_edges(card))

    def note(self, stream: Stream) -> None:
        """Register a stream with buffered data."""
        with self._lock:  # once for each stream and flush
            self._streams.add(stream)

    def declare(self, declared: Mapping[int, MonitoringConfig]) -> None:
        """Update the settings of models, by their ids."""
        for number, monitoring in declared.items():
            settings = self._settings.get(number)
            if settings is not None:
                settings.declare(monitoring)

    def take(self) -> list[TrafficCount]:
        """Remove and return all counts; a caller that cannot write them calls `give_back`."""
        with self._lock:
            streams, self._streams = self._streams, set()
            counted, self._unsent = list(self._unsent.values()), {}
        for stream in streams:
            for (segment, bucket), (counts, sums) in stream.take().items():
                key = (stream.model, stream.version, bucket * self.bucket_seconds, segment)
                counted += [
                    TrafficCount(*key, bin, int(count), int(count), confidence_sum)
                    for bin, (count, confidence_sum) in enumerate(
                        zip(counts.tolist(), sums.tolist(), strict=True)
                    )
                    if count
                ]
        return merge_counts(counted)

    def give_back(self, counted: list[TrafficCount]) -> int:
        """Put counts back; return the number of predictions for which there is no room."""
        lost = 0
        with self._lock:
            for count in counted:
                before = self._unsent.get(count.key)
                if before is not None:
                    self._unsent[count.key] = merge_counts([before, count])[0]
                elif len(self._unsent) < _MAX_UNSENT:
                    self._unsent[count.key] = count
                else:
                    lost += count.predictions
        return lost
