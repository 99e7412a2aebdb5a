"""Monitoring of predictions that a program makes itself, without sending each of them.

All predictions are counted: sums by bin of confidence travel to the server. Labels are sent for a
random sample, which is as large as the wanted width of the interval needs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Self
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.client.calibrators import CHAMPION
from recalib.client.class_columns import in_class_order
from recalib.client.clients import Client
from recalib.client.errors import InvalidRequestError, ResourceNotFoundError
from recalib.client.labels import check_groups, check_row_labels
from recalib.client.retry import encode_json
from recalib.client.sampling import SampleShare
from recalib.client.times import Times, check_times
from recalib.core.arrays import Floats, check_logits, check_probabilities
from recalib.core.card import Card
from recalib.core.decoding import convert
from recalib.core.monitoring_settings import MonitoringSettings
from recalib.core.time_buckets import bucket_start
from recalib.errors import InputError, RecalibError
from recalib.stats.groups import group_counts, group_sums

log = logging.getLogger(__name__)

#: After these errors, the same request never succeeds. After others it may: a conflict means that
#: the server still handles the request, and a key without permission may get it.
_REFUSALS = (InputError, ResourceNotFoundError)
_BUCKET_SECONDS = 60
#: Sums that wait for the server; ten segments fill this in two hours.
_MAX_BUCKETS = 1000
#: Buckets of a request, at most what the server accepts.
_MAX_SENT = 200
#: Labelled rows of a request.
_MAX_ROWS = 10_000


class Aggregated(NamedTuple):
    """Numbers of predictions and of labels since the beginning."""

    #: Predictions that the server has counted.
    predictions: int
    #: Outcomes of labels, by status.
    labels: dict[str, int]
    #: Predictions and labels that were given up: the buffer was full, or the server refused them.
    dropped_predictions: int
    dropped_labels: int


class _Sums(NamedTuple):
    key: str
    segment: str
    buckets: list[dict[str, Any]]

    def predictions(self) -> int:
        return sum(sum(bucket["predictions"]) for bucket in self.buckets)


class _Label(NamedTuple):
    logits: Floats
    label: int | str
    time: float
    segment: str
    group: str


class Aggregator:
    """Counts all predictions of a program, and sends labels of a sample. Thread-safe.

    They are counted by what the version is monitored by: the confidence, or P(y = 1).

    `count` and `label` only write to memory; a thread sends every `flush_seconds`. Sums have an
    idempotency key and labels are recognised by the server, so what is sent again after a broken
    connection counts once. While the server is away, sums stay in up to 1,000 buckets of a minute
    and labels in a buffer of `max_labels`. Beyond these the oldest are given up, which `state` and
    the log report. `close` sends what is left.

    Parameters
    ----------
    calibrator: the version that makes the predictions, or an alias, which is read once.
    width: of the 95% interval of accuracy minus mean confidence, over the predictions of
        `period_seconds`, if every prediction of the sample gets a label.
    max_labels: labels that wait for the server.

    Raises
    ------
    InputError: a parameter is out of range.
    ResourceNotFoundError: no such model or version.
    ServiceError, UnreachableError: the calibrator cannot be read.

    Examples
    --------
    >>> with Aggregator(client, "resnet", width=0.01) as aggregator:      # doctest: +SKIP
    ...     sample = aggregator.count(calibrator.predict(logits))
    ...     # later, with the labels of these rows
    ...     aggregator.label(logits[sample], labels, times)
    """

    def __init__(
        self,
        client: Client,
        model: str,
        *,
        calibrator: int | str = CHAMPION,
        width: float = 0.02,
        period_seconds: float = 86_400.0,
        flush_seconds: float = 5.0,
        max_labels: int = 100_000,
        seed: int | None = None,
    ) -> None:
        numbers = {"width": width, "period_seconds": period_seconds}
        numbers |= {"flush_seconds": flush_seconds, "max_labels": max_labels}
        for name, value in numbers.items():
            if not 0 < value < float("inf"):
                raise InputError(name, found=f"{value}", accepted="a positive number")
        # Imported only here: it takes most of a second.
        from recalib.drift.reference_histogram import reference_edges, reference_target
        from recalib.drift.target import monitored_probabilities

        if isinstance(calibrator, str):
            aliases = {alias.alias: alias.version for alias in client.list_aliases(model)}
            if calibrator not in aliases:
                accepted = ", ".join(aliases) or "a version: the model has no alias"
                raise InputError("calibrator", found=calibrator, accepted=accepted)
            calibrator = aliases[calibrator]
        self.model, self.version = model, calibrator
        self._client = client
        monitoring = MonitoringSettings.of(client.get_model(model).monitoring)
        self._cohort_seconds = monitoring.cohort_seconds
        card = convert(client.get_calibrator(model, calibrator).card, Card)
        self._edges, self._classes = np.array([0.0, *reference_edges(card)]), card.classes
        self._target, self._class_names = reference_target(card), card.labels
        self._probabilities_of = partial(monitored_probabilities, target=self._target)
        self._share = SampleShare(width, period_seconds)
        self._max_labels = max_labels
        self._random = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        #: Numbers of predictions and sums of monitored probabilities, (2, B), by segment and start
        #: of the bucket, in the order of arrival.
        self._sums: dict[tuple[str, int], NDArray[np.float64]] = {}
        #: Sums that may have been counted, or that the server refused with others.
        self._pending: deque[_Sums] = deque()
        self._labels: deque[_Label] = deque()
        self._predictions = self._dropped_predictions = self._dropped_labels = 0
        self._outcomes: Counter[str] = Counter()
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._flush_seconds = flush_seconds
        self._thread = threading.Thread(target=self._run, name="recalib-aggregator", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def state(self) -> Aggregated:
        """What has been sent and given up."""
        with self._lock:
            return Aggregated(
                self._predictions,
                dict(self._outcomes),
                self._dropped_predictions,
                self._dropped_labels,
            )

    @property
    def share(self) -> float:
        """The share of predictions that is in the sample now."""
        with self._lock:
            return self._share.value()

    def count(
        self, probabilities: ArrayLike, *, segment: str = "", at: float | None = None
    ) -> NDArray[np.bool_]:
        """Count predictions; return which of them are in the sample, (N,).

        Parameters
        ----------
        probabilities: calibrated, (N, K); P(y = 1) alone of two classes, (N,) or (N, 1).
        at: when they were made, in seconds since 1970; by default now.

        Raises
        ------
        InputError: not probabilities, or the aggregator is closed.
        """
        rows = in_class_order(probabilities, self._class_names, "probabilities")
        checked = check_probabilities(rows, classes=self._classes)
        confidences = self._probabilities_of(checked)
        bins = np.searchsorted(self._edges, confidences, side="right") - 1
        size = len(self._edges)
        sums = np.array([group_counts(bins, size), group_sums(bins, confidences, size)])
        made_at = time.time() if at is None else at
        start = bucket_start(made_at, _BUCKET_SECONDS, self._cohort_seconds)
        with self._lock:
            self._check_open()
            self._add(segment, start, sums)
            self._share.add(confidences)
            return self._random.random(len(confidences)) < self._share.value()

    def label(
        self,
        logits: ArrayLike,
        labels: Sequence[int | str] | NDArray[np.integer],
        times: Times,
        *,
        segment: str = "",
        groups: Sequence[str] | None = None,
    ) -> None:
        """Add the labels of predictions of the sample.

        Parameters
        ----------
        logits: the input of the calibrator, (N, K), of rows that `count` has selected.
        labels: (N,), class indices, or class labels if the model has them.
        times: (N,), when the predictions were made, as for `Client.add_observations`.
        groups: (N,), as for `Client.add_observations`.

        Raises
        ------
        InputError: the lengths differ, a label is neither an integer nor a string, a time is not
            finite, a group is no text, or the aggregator is closed. No row is added.
        """
        rows = in_class_order(logits, self._class_names, "logits")
        rows = check_logits(rows, classes=self._classes)
        label_list, time_list = check_row_labels(labels), check_times(times, len(rows)).tolist()
        group_list = check_groups(groups, len(rows))
        encode_json([segment, *label_list, *group_list])  # such as half of a surrogate pair
        if len(label_list) != len(rows):
            accepted = f"{len(rows)}, one for each row"
            raise InputError("labels", found=f"{len(label_list)} labels", accepted=accepted)
        with self._lock:
            self._check_open()
            columns = rows.copy(), label_list, time_list, group_list
            for row, label, at, group in zip(*columns, strict=True):
                self._labels.append(_Label(row, label, at, segment, group))
            self._shrink_labels()
            is_full = len(self._labels) >= _MAX_ROWS
        if is_full:
            self._wake.set()

    def flush(self) -> None:
        """Send what is in memory.

        Raises
        ------
        RecalibError: the server did not take all; the rest stays in memory.
        """
        with self._sending:
            while self._send_sums():
                pass
            while self._send_labels():
                pass

    def close(self) -> None:
        """Send what is in memory and end the thread; what the server does not take is dropped."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._wake.set()
        self._thread.join()
        try:
            self.flush()
        except RecalibError as error:
            with self._lock:
                predictions = sum(request.predictions() for request in self._pending)
                predictions += sum(int(sums[0].sum()) for sums in self._sums.values())
                self._drop(predictions, len(self._labels), str(error))
                self._sums = {}
                self._pending.clear()
                self._labels.clear()

    def _run(self) -> None:
        # After an error, a full buffer does not shorten the pause.
        event = self._wake
        while True:
            event.wait(self._flush_seconds)
            self._wake.clear()
            if self._closed.is_set():
                return
            event = self._closed
            try:
                self.flush()
                event = self._wake
            except RecalibError as error:
                log.warning("Counts are sent later: %s", error, extra={"action": "sent_later"})
            except Exception:  # of any kind: the thread must go on
                log.exception("Counts are not sent.", extra={"action": "not_sent"})

    def _send_sums(self) -> bool:
        """Send sums of a segment; return whether there were any."""
        with self._lock:
            if not self._pending and self._sums:
                segment = next(iter(self._sums))[0]
                starts = [start for name, start in self._sums if name == segment][:_MAX_SENT]
                buckets = [_bucket(start, self._sums.pop((segment, start))) for start in starts]
                self._pending.append(_Sums(uuid4().hex, segment, buckets))
            if not self._pending:
                return False
            request = self._pending[0]
        dropped, reason, accepted = 0, "they came too late", 0
        halves: list[_Sums] = []
        try:
            answer = self._client.add_traffic(
                self.model,
                request.buckets,
                segment=request.segment,
                target=self._target,
                calibrator=self.version,
                idempotency_key=request.key,
            )
            accepted, dropped = answer.accepted, answer.expired
        except _REFUSALS as error:
            halves = _halves(request) if isinstance(error, InvalidRequestError) else []
            if not halves:
                dropped, reason = request.predictions(), str(error)
        with self._lock:
            self._pending.popleft()
            self._pending.extendleft(reversed(halves))
            self._predictions += accepted
            self._drop(dropped, 0, reason)
        return True

    def _send_labels(self) -> bool:
        """Send labels of a segment; return whether there were any."""
        with self._lock:
            batch: list[_Label] = []
            while self._labels and len(batch) < _MAX_ROWS:
                if batch and self._labels[0].segment != batch[0].segment:
                    break
                batch.append(self._labels.popleft())
        if not batch:
            return False
        groups = [item.group for item in batch]
        try:
            answer = self._client.add_observations(
                self.model,
                np.array([item.logits for item in batch]),
                [item.label for item in batch],
                [item.time for item in batch],
                segment=batch[0].segment,
                calibrator=self.version,
                counted=True,
                # Servers of earlier versions refuse groups.
                groups=groups if any(groups) else None,
            )
        except _REFUSALS as error:
            with self._lock:
                self._drop(0, len(batch), str(error))
            return True
        except BaseException:
            with self._lock:
                self._labels.extendleft(reversed(batch))
                self._shrink_labels()
            raise
        with self._lock:
            self._outcomes.update(answer.counts)
        return True

    def _add(self, segment: str, start: int, sums: NDArray[np.float64]) -> None:
        key = (segment, start)
        before = self._sums.get(key)
        self._sums[key] = sums if before is None else before + sums
        if len(self._sums) > _MAX_BUCKETS:
            oldest = self._sums.pop(next(iter(self._sums)))
            self._drop(int(oldest[0].sum()), 0, "the server did not take them in time")

    def _shrink_labels(self) -> None:
        excess = max(len(self._labels) - self._max_labels, 0)
        for _ in range(excess):
            self._labels.popleft()
        self._drop(0, excess, "the server did not take them in time")

    def _drop(self, predictions: int, labels: int, reason: str) -> None:
        self._dropped_predictions += predictions
        self._dropped_labels += labels
        if predictions or labels:
            text = "%d predictions and %d labels are given up: %s"
            fields = {"action": "aggregates_dropped"}
            log.error(text, predictions, labels, reason, extra=fields)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise InputError("aggregator", found="a closed one", accepted="an open one")


def _halves(request: _Sums) -> list[_Sums]:
    """Return requests of half the buckets, as one invalid bucket refuses all; [] for one bucket."""
    middle = len(request.buckets) // 2
    parts = (request.buckets[:middle], request.buckets[middle:]) if middle else ()
    return [_Sums(uuid4().hex, request.segment, part) for part in parts]


def _bucket(start: int, sums: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "started_at": float(start),
        "predictions": sums[0].astype(np.int64).tolist(),
        "confidence_sums": sums[1].tolist(),
    }
