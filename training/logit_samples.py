"""Sampled logits with their labels: the data for refits and shadow comparisons."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recalib.calibrator import Calibrator
from recalib.core.arrays import Floats
from recalib.core.decoding import convert
from recalib.errors import CorruptError, NotFoundError
from recalib.registry import Capture, Model, Registry
from recalib.shift import ShadowState, answers_given

log = logging.getLogger(__name__)

#: Largest number of rows of a sample.
MAX_ROWS = 200_000
#: About this number of rows is read of a cohort: 80 MB with 1,000 classes.
MAX_COHORT_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class LabelledSample:
    """Labelled logits in the order of their predictions, up to `end` (exclusive)."""

    #: Input of the map, (N, K).
    logits: NDArray[np.float32]
    #: True classes (N,), or labels (N, K) of a multilabel model.
    labels: NDArray[np.int64] | NDArray[np.bool_]
    #: Predicted classes, and prediction times in seconds, (N,) each.
    predicted: NDArray[np.int64]
    times: NDArray[np.float64]
    #: Numbers of groups of dependent rows, (N,); 0 for none.
    groups: NDArray[np.int64]
    end: float
    #: Number of sampled logits, with or without a label.
    sampled: int
    #: Numbers of the states that adapted the answers to label shift, (N,), 0 for none; and these.
    adaptations: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    states: Mapping[int, ShadowState] = field(default_factory=dict)
    #: Declared segments of the model, (N,), "" for none.
    segments: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))

    def __len__(self) -> int:
        return len(self.labels)

    def answers(self, calibrator: Calibrator, *, given: bool = True) -> Floats:
        """Return the answers of a version, (N, K), as they were given; or not adapted.

        Offsets of a segment that the model does not declare are missing: ids do not have it.
        """
        p_nk = calibrator.predict_float64(self.logits, calibrator.offsets_of_values(self.segments))
        is_adapted = given and self.states
        return answers_given(p_nk, self.adaptations, self.states) if is_adapted else p_nk


def read_labelled_sample(
    registry: Registry,
    model: Model,
    version: int,
    start: float,
    end: float,
    *,
    newest: bool = False,
    max_rows: int = MAX_ROWS,
) -> LabelledSample:
    """Return the labelled logits of a version's predictions in [start, end).

    Labels count if they arrived within the model's maturity. About `max_rows` rows are read: those
    of the oldest files, with an earlier `end` that is still after `start`; or, with `newest`, those
    of the newest files, with a later `start`.
    """
    with registry.reading() as tx:
        files = tx.captures.between(model, start, end)
        selected = _newest(files, max_rows) if newest else _oldest(files, max_rows)
        if len(selected) < len(files):
            if newest:
                start = max(start, min(file.first_at for file in selected))
            else:
                end = min(end, files[len(selected)].first_at)
        maturity = model.monitoring.maturity_seconds
        labels_by_digest = tx.labels.by_digest(model, version, start, end, maturity)
        numbers = {number for *_, number, _ in labels_by_digest.values()} - {0}
        stored = tx.adaptations.states(model.id, version, numbers) if numbers else {}
    samples: list[tuple[float, bytes, int | bytes, int, int, int, int, Any]] = []
    sampled = 0
    for capture in selected:
        table = _read_table(registry, capture)
        if table is None:
            continue
        logits = table["logits"].combine_chunks()
        rows = logits.flatten().to_numpy().reshape(len(table), -1)
        sampled += len(table)
        for digest, row in zip(table["digest"].to_pylist(), rows, strict=True):
            if digest in labels_by_digest:
                # A copy releases the memory of the file's other rows.
                time, *of_label = labels_by_digest[digest]
                samples.append((time, digest, *of_label, row.copy()))
    # Observations of one time may have been sent in an order that depends on the outcomes.
    samples.sort(key=lambda sample: sample[:2])
    times = np.array([time for time, *_ in samples])
    labels = _labels_of(model, [label for _, _, label, *_ in samples])
    predicted = np.array([sample[3] for sample in samples], np.int64)
    groups = np.array([sample[4] for sample in samples], np.int64)
    logits = np.zeros((0, model.classes), np.float32)
    if samples:
        logits = np.stack([row for *_, row in samples])
    adaptations = np.array([sample[5] for sample in samples], np.int64)
    states = {number: convert(state, ShadowState) for number, state in stored.items()}
    names = ("", *model.monitoring.segments)
    segments = np.array([names[sample[6]] for sample in samples], np.str_)
    row_columns = logits, labels, predicted, times, groups
    return LabelledSample(*row_columns, end, sampled, adaptations, states, segments)


def read_calibrator(registry: Registry, model: Model, version: int) -> Calibrator:
    """Return a version of a model."""
    with registry.reading() as tx:
        return Calibrator.from_bytes(tx.calibrators.parameters(model, version))


def read_newest_logits(registry: Registry, files: list[Capture], rows: int) -> NDArray[np.float32]:
    """Return the newest logits of files in the order of time, (N, K), at most `rows`."""
    parts: list[NDArray[np.float32]] = []
    for capture in reversed(files):
        table = _read_table(registry, capture)
        if table is not None:
            logits = table["logits"].combine_chunks().flatten().to_numpy()
            parts.insert(0, logits.reshape(len(table), -1))
        if sum(map(len, parts)) >= rows:
            break
    return np.concatenate(parts)[-rows:] if parts else np.zeros((0, 0), np.float32)


def brier_scores(
    calibrator: Calibrator, rows: LabelledSample, *, given: bool = False
) -> NDArray[np.float64]:
    """Return Σ_k (p_k − 1[k = y])² of each row, (N,) in [0, 2]; of `LabelledSample.answers`.

    Of multilabel rows, it is the mean over labels of this score of two classes, 2 (p − y)².
    """
    errors = rows.answers(calibrator, given=given)
    if rows.labels.ndim == 2:
        squares: NDArray[np.float64] = 2 * ((errors - rows.labels) ** 2).mean(axis=1)
    else:
        errors[np.arange(len(rows)), rows.labels] -= 1
        squares = (errors**2).sum(axis=1)
    # Rounding may exceed 2 slightly, and the test requires scores in [0, 2].
    return np.minimum(squares, 2.0)


def _labels_of(model: Model, values: list[int | bytes]) -> NDArray[np.int64] | NDArray[np.bool_]:
    """Return labels (N,), or (N, K) from the bits of each multilabel row."""
    if not model.is_multilabel:
        return np.array(values, np.int64)
    shape = len(values), math.ceil(model.classes / 8)
    packed = np.frombuffer(b"".join(map(bytes, values)), np.uint8).reshape(shape)
    return np.unpackbits(packed, axis=1, count=model.classes).astype(bool)


def _read_table(registry: Registry, capture: Capture) -> Any:
    """Return the table of a file, or None if it is damaged or gone: the rest is a sample too."""
    try:
        registry.blobs.verify(capture.digest)
        with registry.blobs.open(capture.digest) as file:
            return pq.read_table(file)
    except (CorruptError, NotFoundError) as error:
        fields = {"action": "capture_left_out", "digest": capture.digest}
        log.warning("A file of sampled logits is skipped: %s", error, extra=fields)
        return None


def _newest(files: list[Capture], max_rows: int) -> list[Capture]:
    """Return the newest files with at most `max_rows` rows in total, at least one file."""
    is_within = np.cumsum([file.rows for file in reversed(files)]) <= max_rows
    return files[::-1][: max(int(np.count_nonzero(is_within)), 1)]


def _oldest(files: list[Capture], max_rows: int) -> list[Capture]:
    """Return the oldest files with about `max_rows` rows in total.

    All files that start before the first one ends are included. Files of several processes overlap,
    and a reader that continues at the start of the next file must make progress.
    """
    rows = 0
    for number, file in enumerate(files):
        rows += file.rows
        if rows > max_rows and file.first_at > files[0].last_at:
            return files[:number]
    return files
