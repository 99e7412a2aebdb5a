"""How many predictions this process has made, by confidence and time, until the registry has it.

A request only puts its answer aside; what its confidences were is worked out for thousands of
requests at once. `python -m benchmarks.traffic` says what both take.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.card import Card
from recalib.drift.calibration_sums import bin_indices
from recalib.drift.reference_histogram import reference_edges
from recalib.registry import Model, MonitoringConfig, TrafficCount
from service.monitoring.logit_sampling import Captures

__all__ = ["Stream", "Traffic"]

#: Numbers of an answer up to which it is put aside whole; of a larger one, the confidences are.
_SMALL = 256
#: Answers put aside before they are counted: about a megabyte.
_MOST_ASIDE = 4096
#: Counts kept while the registry is away; a day of a busy service has fewer.
_MOST_UNSENT = 1_000_000

Counts = NDArray[np.int64]


class _Watched:
    """What a model declares, as far as it matters while serving; replaced whole."""

    def __init__(self, monitoring: MonitoringConfig) -> None:
        self.declare(monitoring)

    def declare(self, monitoring: MonitoringConfig) -> None:
        self.capture = monitoring.capture
        self.segments = {name: number for number, name in enumerate(monitoring.segments, 1)}


class Stream:
    """What one version answers; safe to use from threads."""

    def __init__(
        self, traffic: Traffic, watched: _Watched, model: int, version: int, edges: Any
    ) -> None:
        self.model = model
        self.version = version
        self._traffic = traffic
        self._watched = watched
        self._edges = edges
        self._lock = threading.Lock()
        #: By segment, bucket, and whether they are confidences: all of a list have one width.
        self._aside: dict[tuple[int, int, bool], list[Floats]] = {}
        self._held = 0
        self._counts: dict[tuple[int, int], Counts] = {}

    def segment_of(self, name: str) -> int:
        """Return the number of a segment; 0 for one that the model does not declare."""
        return self._watched.segments.get(name, 0)

    def keep(self, ids: Sequence[str | None], logits: Floats) -> None:
        """Keep the logits of the share of predictions that the model wants kept."""
        if self._watched.capture > 0:
            self._traffic.captures.keep(self.model, self._watched.capture, ids, logits)

    def add(self, probabilities: Floats, segment: int = 0) -> None:
        """Count a batch of predictions, made now.

        Parameters
        ----------
        probabilities: what is answered, (N, K); not changed afterwards.
        """
        large = probabilities.size > _SMALL
        if large:
            probabilities = np.maximum.reduce(probabilities, axis=1, keepdims=True)
        key = (segment, int(time.time() // self._traffic.bucket_seconds), large)
        with self._lock:
            aside = self._aside.get(key)
            if aside is None:
                aside = self._aside[key] = []
                self._traffic.note(self)
            aside.append(probabilities)
            self._held += 1
            if self._held >= _MOST_ASIDE:
                self._fold()

    def take(self) -> dict[tuple[int, int], Counts]:
        """Return counts (B,) by segment and bucket since the last time."""
        with self._lock:
            self._fold()
            counts, self._counts = self._counts, {}
        return counts

    def _fold(self) -> None:
        aside, self._aside, self._held = self._aside, {}, 0
        for (segment, bucket, _), batches in aside.items():
            # All at once: a call of NumPy's a batch would take as long as this for thousands.
            confidences = np.concatenate(batches).max(axis=1)
            places = bin_indices(self._edges, confidences)
            counts = np.bincount(places, minlength=len(self._edges) + 1)
            before = self._counts.get((segment, bucket))
            self._counts[segment, bucket] = counts if before is None else before + counts


class Traffic:
    """All that this process has answered since it was last written down.

    Parameters
    ----------
    bucket_seconds: how long a bucket of counts is, the same in all processes, so that theirs add
        up; a divisor of windows.
    """

    def __init__(self, bucket_seconds: int = 300) -> None:
        self.bucket_seconds = bucket_seconds
        self.captures = Captures()
        self._lock = threading.Lock()
        self._watched: WeakValueDictionary[int, _Watched] = WeakValueDictionary()
        #: Those with something aside; a stream outlives its calibrator until it has been taken.
        self._streams: set[Stream] = set()
        self._unsent: Counter[TrafficCount] = Counter()

    def stream(self, model: Model, version: int, card: Card) -> Stream:
        """Return what counts the answers of a version."""
        with self._lock:
            watched = self._watched.get(model.id)
            if watched is None:
                watched = self._watched[model.id] = _Watched(model.monitoring)
        return Stream(self, watched, model.id, version, reference_edges(card))

    def note(self, stream: Stream) -> None:
        """Remember that a stream has something to be taken."""
        with self._lock:  # once for each stream and flush
            self._streams.add(stream)

    def declare(self, declared: Mapping[int, MonitoringConfig]) -> None:
        """Follow what models declare, by their numbers."""
        for number, monitoring in declared.items():
            watched = self._watched.get(number)
            if watched is not None:
                watched.declare(monitoring)

    def take(self) -> list[TrafficCount]:
        """Return everything since the last time; whoever cannot write it down gives it back."""
        with self._lock:
            streams, self._streams = self._streams, set()
            counted, self._unsent = self._unsent, Counter()
        for stream in streams:
            for (segment, bucket), counts in stream.take().items():
                start = bucket * self.bucket_seconds
                for bin, count in enumerate(counts.tolist()):
                    if count:
                        key = TrafficCount(stream.model, stream.version, start, segment, bin, 0)
                        counted[key] += count
        return [key._replace(predictions=count) for key, count in counted.items()]

    def give_back(self, counted: list[TrafficCount]) -> int:
        """Keep counts for the next time; return how many predictions there was no room for."""
        lost = 0
        with self._lock:
            for one in counted:
                key = one._replace(predictions=0)
                if key in self._unsent or len(self._unsent) < _MOST_UNSENT:
                    self._unsent[key] += one.predictions
                else:
                    lost += one.predictions
        return lost
