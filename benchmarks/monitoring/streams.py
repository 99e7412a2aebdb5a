"""Streams of labelled predictions with a known truth, each the same for every detector.

A stream is 15,000 labels of a classifier whose confidences are those of a binary one with normal
log-odds, N(1.5, 1.5²). Drift begins at label 5,137. It is no multiple of 1,000, because that would
favour detectors that test every 1,000 labels.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Rows = tuple[Values, Values]

LABELS, ONSET = 15_000, 5_137
TOLERANCE = 0.02
_GRADUAL = 5_000


def stream(name: str, seed: int) -> Rows:
    """Return confidences and correctness (N,) of a stream, in the order in which it is read."""
    rng = np.random.default_rng([seed, crc32(name.encode())])
    return {**NULLS, **DRIFTS, **BENT}[name](rng)


def draw_confidences(rng: np.random.Generator, rows: int, centre: float = 1.5) -> Values:
    """Return confidences (N,) of a binary classifier."""
    p = 1 / (1 + np.exp(-rng.normal(centre, 1.5, size=rows)))
    return np.maximum(p, 1 - p)


def draw_outcomes(rng: np.random.Generator, truth: Values) -> Values:
    """Return correctness (N,) for true accuracies (N,)."""
    return (rng.random(len(truth)) < truth).astype(np.float64)


def _calibrated(rng: np.random.Generator) -> Rows:
    p = draw_confidences(rng, LABELS)
    return p, draw_outcomes(rng, p)


def _shifted(rng: np.random.Generator) -> Values:
    """Return confidences that are lower from the onset on: harder inputs."""
    before, after = draw_confidences(rng, ONSET, 2.5), draw_confidences(rng, LABELS - ONSET, 0.3)
    return np.concatenate([before, after])


def _covariate_shift(rng: np.random.Generator) -> Rows:
    p = _shifted(rng)
    return p, draw_outcomes(rng, p)


def _tolerated(p: Values) -> Values:
    """Return truths at the limit of the tolerance: overconfident above 0.85, else under."""
    return np.clip(np.where(p > 0.85, p - TOLERANCE, p + TOLERANCE), 0, 1)


def _tolerated_always(rng: np.random.Generator) -> Rows:
    p = draw_confidences(rng, LABELS)
    return p, draw_outcomes(rng, _tolerated(p))


def _tolerated_shift(rng: np.random.Generator) -> Rows:
    p = _shifted(rng)
    return p, draw_outcomes(rng, _tolerated(p))


def _tolerated_turn(rng: np.random.Generator) -> Rows:
    """Overconfident by the tolerance from the onset on, underconfident by it before."""
    p = draw_confidences(rng, LABELS)
    off = np.where(np.arange(LABELS) < ONSET, TOLERANCE, -TOLERANCE)
    return p, draw_outcomes(rng, np.clip(p + off, 0, 1))


def _delayed(rng: np.random.Generator) -> Rows:
    """Errors are reported twice as fast; cohorts are read when 99% of labels have arrived."""
    p = draw_confidences(rng, LABELS)
    y = draw_outcomes(rng, p)
    delay = rng.exponential(np.where(y == 1, 2.0, 1.0))
    on_time = delay <= np.quantile(delay, 0.99)
    return p[on_time], y[on_time]


def _selective(rng: np.random.Generator) -> Rows:
    """Low confidences are labelled more often, independent of the outcome."""
    p = draw_confidences(rng, 3 * LABELS)
    p = p[rng.random(len(p)) < 1.1 - p][:LABELS]
    return p, draw_outcomes(rng, p)


#: Streams without drift: every alarm is false.
NULLS: dict[str, Callable[[np.random.Generator], Rows]] = {
    "calibrated": _calibrated,
    "covariate shift": _covariate_shift,
    "delayed": _delayed,
    "selective": _selective,
    "tolerated": _tolerated_always,
    "tolerated, shift": _tolerated_shift,
    "tolerated, turn": _tolerated_turn,
}


def _drift(change: Callable[[Values], Values]) -> Callable[[np.random.Generator], Rows]:
    def draw(rng: np.random.Generator) -> Rows:
        p = draw_confidences(rng, LABELS)
        truth = np.concatenate([p[:ONSET], change(p[ONSET:])])
        return p, draw_outcomes(rng, truth)

    return draw


def _flatter(p: Values, slope: Values | float) -> Values:
    return 1 / (1 + ((1 - p) / p) ** slope)


def _gradually(p: Values) -> Values:
    return _flatter(p, 1 - 0.3 * np.minimum(np.arange(len(p)) / _GRADUAL, 1))


def _rarer(p: Values) -> Values:
    """Return truths after a prior shift: the predicted class is rarer by 0.5 in log-odds."""
    return 1 / (1 + np.exp(0.5) * (1 - p) / p)


#: Drifts from the onset on: true log-odds are 0.7 times the predicted ones, at once or gradually
#: over 5,000 labels; a prior shift; and confidences 15 points too high between 80% and 90%.
DRIFTS: dict[str, Callable[[np.random.Generator], Rows]] = {
    "overconfidence": _drift(lambda p: _flatter(p, 0.7)),
    "prior shift": _drift(_rarer),
    "local": _drift(lambda p: np.where((p > 0.8) & (p < 0.9), p - 0.15, p)),
    "gradual": _drift(_gradually),
}


def _arrival(rng: np.random.Generator) -> Rows:
    """As `delayed`, but in order of arrival, over ten mean delays."""
    p = draw_confidences(rng, LABELS)
    y = draw_outcomes(rng, p)
    arrived_at = 10 * np.arange(LABELS) / LABELS + rng.exponential(np.where(y == 1, 2.0, 1.0))
    order = np.argsort(arrived_at)
    return p[order], y[order]


def _by_outcome(rng: np.random.Generator) -> Rows:
    p = draw_confidences(rng, LABELS)
    y = draw_outcomes(rng, p)
    labelled = (y == 0) | (rng.random(LABELS) < 0.8)
    return p[labelled], y[labelled]


#: Calibrated, but read in an order for which no test is valid.
BENT: dict[str, Callable[[np.random.Generator], Rows]] = {
    "in order of arrival": _arrival,
    "all errors, 80% of the rest": _by_outcome,
}
