"""Drift detectors: Recalib's test and others; each returns its first alarm.

All get confidences and correctness; river's detectors get their difference. The `tuned` detectors
have thresholds that a user could not know: the 95th percentile of their statistic on 200 calibrated
streams of the same law and length.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from benchmarks.monitoring.streams import LABELS, TOLERANCE, stream
from benchmarks.peers import install
from recalib.drift import CalibrationTest

Values = NDArray[np.float64]
#: Returns the number of labels at the first alarm, or None, for confidences and correctness (N,).
Detector = Callable[[Values, Values], int | None]

#: The second has no tolerance, like the peers, whose rate is at most 5% only for exact confidences.
OURS, EXACT = "recalib", "recalib, no tolerance"
_ALPHA = 0.05
_WINDOW = 1_000
_TUNED_ON = range(10_000, 10_200)


def _ours(p: Values, y: Values) -> int | None:
    test = CalibrationTest(alpha=_ALPHA, tolerance=TOLERANCE)
    test.update(p, y)
    return test.rejected_at


def _exact(p: Values, y: Values) -> int | None:
    test = CalibrationTest(alpha=_ALPHA, tolerance=0.0)
    test.update(p, y)
    return test.rejected_at


@cache
def _river() -> Any:
    install(Path(__file__).with_name("peers.txt"))
    return import_module("river.drift")


def available() -> bool:
    """Return whether river is installed; print the reason if not."""
    try:
        _river()
    except Exception as error:  # an import may raise any type
        print(f"river: not installed ({type(error).__name__}: {error})", flush=True)
        return False
    return True


def _first(detector: Any, values: Values) -> int | None:
    for label, value in enumerate(values.tolist(), start=1):
        detector.update(value)
        if detector.drift_detected:
            return label
    return None


def _adwin(p: Values, y: Values) -> int | None:
    return _first(_river().ADWIN(), p - y)


def _page_hinkley(p: Values, y: Values) -> int | None:
    return _first(_river().PageHinkley(), p - y)


def _page_hinkley_tuned(p: Values, y: Values) -> int | None:
    return _first(_river().PageHinkley(threshold=_highest_sum()), p - y)


@cache
def _highest_sum() -> float:
    """Return the threshold that 5% of calibrated streams reach, by bisection."""
    streams = [stream("calibrated", seed) for seed in _TUNED_ON][:60]
    low, high = 25.0, 400.0
    while high - low > 2:
        middle = (low + high) / 2
        alarms = [
            _first(_river().PageHinkley(threshold=middle), p - y) is not None for p, y in streams
        ]
        low, high = (middle, high) if np.mean(alarms) > _ALPHA else (low, middle)
    return high


def _windows(statistic: Callable[[Values, Values], float], threshold: float) -> Detector:
    def detect(p: Values, y: Values) -> int | None:
        for end in range(_WINDOW, len(p) + 1, _WINDOW):
            rows = slice(end - _WINDOW, end)
            if statistic(p[rows], y[rows]) > threshold:
                return end
        return None

    return detect


def _ece(p: Values, y: Values) -> float:
    places = np.minimum((p * 15).astype(np.intp), 14)
    return float(np.abs(np.bincount(places, y - p)).sum() / len(p))


def _hosmer_lemeshow(p: Values, y: Values) -> float:
    """Return Σ (observed − expected)² / variance over ten groups of equal size."""
    groups = np.array_split(np.argsort(p), 10)
    return float(sum(np.sum(y[at] - p[at]) ** 2 / np.sum(p[at] * (1 - p[at])) for at in groups))


@cache
def _highest_ece() -> float:
    """Return the largest ECE of a window that 5% of calibrated streams reach."""
    highest = []
    for seed in _TUNED_ON:
        p, y = stream("calibrated", seed)
        ends = range(_WINDOW, len(p) + 1, _WINDOW)
        highest.append(max(_ece(p[end - _WINDOW : end], y[end - _WINDOW : end]) for end in ends))
    return float(np.quantile(highest, 1 - _ALPHA))


def _chi2(false_alarms: float) -> float:
    return float(scipy.stats.chi2.ppf(1 - false_alarms, 10))


DETECTORS: dict[str, Detector] = {
    OURS: _ours,
    EXACT: _exact,
    "ADWIN": _adwin,
    "Page-Hinkley": _page_hinkley,
    "Page-Hinkley, tuned": _page_hinkley_tuned,
    "ECE > 5%": _windows(_ece, 0.05),
    "ECE, tuned": lambda p, y: _windows(_ece, _highest_ece())(p, y),
    "Hosmer-Lemeshow 5%": _windows(_hosmer_lemeshow, _chi2(_ALPHA)),
    # Bonferroni's share of α for each window, which requires the number of windows.
    "Hosmer-Lemeshow, tuned": _windows(_hosmer_lemeshow, _chi2(_ALPHA / (LABELS // _WINDOW))),
}
