"""Speed of metrics, relative to plain NumPy with the same result, and to torchmetrics.

All run on one thread, in processor time, so other programs on the machine have little effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Goal, interleaved
from recalib.metrics import METRICS, Predictions
from recalib.metrics.ece import ExpectedCalibrationError
from recalib.metrics.evaluate import evaluate

_BINS = 15

Numbers = NDArray[np.float32]
Labels = NDArray[np.int64]


def run() -> Iterator[Goal]:
    """Measure ECE of 10⁶ confidences, class-wise ECE of 10,000 x 1000, all of 25,000 x 1000."""
    yield _ece()
    yield from _classwise()
    yield _every()


def _ece() -> Goal:
    """Compare ECE. Ours computes the sums that the interval needs; plain NumPy those of ECE."""
    rng = np.random.default_rng(0)
    confidences = rng.beta(5, 1, 10**6).astype(np.float32)
    correct = rng.random(10**6) < confidences
    metric = ExpectedCalibrationError(_BINS)
    values: dict[str, float] = {}

    def ours() -> None:
        state = metric.state(2)
        state.add(confidences, correct)
        values["ours"] = metric.estimate(state).value

    def plain() -> None:
        p = confidences.astype(np.float64)
        bins = np.minimum((np.ceil(p * _BINS)).astype(np.intp) - 1, _BINS - 1)
        counts = np.bincount(bins, minlength=_BINS)
        gaps = np.bincount(bins, correct, _BINS) - np.bincount(bins, p, _BINS)
        values["plain"] = float(np.abs(gaps).sum() / counts.sum())

    best = _best({"ours": ours, "plain": plain}, 15)
    _require_equal(values["ours"], values["plain"])
    title = f"{metric.name} of 1,000,000 confidences, over numpy.bincount"
    return Goal(title, best["ours"] / best["plain"], 1.5, True)


def _classwise() -> Iterator[Goal]:
    predictions = Predictions.from_logits(*_logits(10_000, 1000))
    p, labels = predictions.probabilities, predictions.labels
    metric = METRICS["classwise_ece"](_BINS)
    values: dict[str, float] = {}

    def ours() -> None:
        values["ours"] = metric.measure(predictions).value

    def plain() -> None:
        """Compare class-wise ECE. Plain NumPy uses `bincount` over all cells of class and bin."""
        rows, classes = p.shape
        bins = np.clip(np.ceil(p * _BINS).astype(np.intp) - 1, 0, _BINS - 1)
        cells = (bins + np.arange(classes) * _BINS).ravel()
        confidence = np.bincount(cells, p.ravel(), classes * _BINS)
        label_bins = bins[np.arange(rows), labels] + labels * _BINS
        occurred = np.bincount(label_bins, minlength=classes * _BINS)
        values["plain"] = float(np.abs(occurred - confidence).sum() / (rows * classes))

    best = _best({"ours": ours, "plain": plain}, 5)
    _require_equal(values["ours"], values["plain"])
    title = "classwise_ece, 10,000x1000"
    yield Goal(f"{title}, over plain NumPy", best["ours"] / best["plain"], 0.5, True)
    loop = _torchmetrics(p, labels, values)
    if loop is None:
        return
    seconds = _best({"theirs": loop}, 1)["theirs"]
    _require_equal(values["ours"], values["theirs"])
    yield Goal(
        f"{title}: torchmetrics' time in a loop over ours", seconds / best["ours"], 10, False
    )


def _torchmetrics(
    p: Numbers, labels: Labels, values: dict[str, float]
) -> Callable[[], None] | None:
    """Return torchmetrics' binary error of each column, one after the other; None without it."""
    try:
        import torch
        from torchmetrics.functional.classification import binary_calibration_error
    except ImportError:
        return None
    torch.set_num_threads(1)
    columns, classes = torch.tensor(p.T.copy()), torch.tensor(labels)

    def loop() -> None:
        errors = [
            float(binary_calibration_error(column, (classes == k).int(), n_bins=_BINS))
            for k, column in enumerate(columns)
        ]
        values["theirs"] = float(np.mean(errors))

    return loop


def _every() -> Goal:
    logits, labels = _logits(25_000, 1000)

    def softmax() -> None:
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        powers /= powers.sum(axis=1, keepdims=True)

    best = _best({"ours": lambda: evaluate(labels, logits=logits), "softmax": softmax}, 5)
    title = "every metric but those on request, 25,000x1000, over one NumPy softmax"
    return Goal(title, best["ours"] / best["softmax"], 5, True)


def _logits(rows: int, classes: int) -> tuple[Numbers, Labels]:
    """Return logits of a classifier that is right in three of four rows, and their labels."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((rows, classes), np.float32)
    labels = rng.integers(0, classes, rows)
    logits[np.arange(rows), labels] += rng.normal(8, 4, rows).astype(np.float32)
    return logits * np.float32(1.5), labels


def _best(acts: dict[str, Callable[[], object]], times: int) -> dict[str, float]:
    seconds = interleaved(acts, times, clock=time.thread_time)
    return {name: min(of) for name, of in seconds.items()}


def _require_equal(ours: float, other: float) -> None:
    """Exit if the results differ: a ratio is meaningful only for equal results."""
    if abs(ours - other) > 1e-5 * max(ours, other) + 1e-9:
        raise AssertionError(f"measured {ours} and {other}")
