"""Plausible drifts, on which `MixtureBettor` bets.

Legend: N rows, J alternatives, M cells of confidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.drift.target import Target

#: Predictions are clipped this far from 0 and 1: one wrong bet may not lose the whole stake.
EDGE = 1e-6

#: Cells of equal width in arcsin √c, in which residuals have equal variance.
_CELLS = 256
#: Slopes of the true log-odds against those of the confidence, numbers of rivals, and the weights
#: of these numbers. If the top class has m equally probable rivals, a temperature T changes its
#: log-odds z to z/T − (1 − 1/T) ln m. With less than one rival, slope and intercept counteract.
_SLOPES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.15, 1.4)
_RIVALS = {0.25: 0.3, 1.0: 1.0, 2.0: 1.0, 5.0: 1.0}
#: Intercepts of log-odds: a class that becomes rarer or more frequent.
_INTERCEPTS = (-1.0, -0.5, -0.25, -0.12, 0.12, 0.25, 0.5, 1.0)
#: Shares of labels that are replaced by wrong ones.
_NOISE = (0.05, 0.12)
#: Local drifts shift the angle arcsin √c by this much in a range of angles, so they are equally
#: visible at every confidence. There is a range at each step. Its edges slope, so that a drift
#: between two ranges resembles both.
_SHIFT, _STEP = 0.17, np.pi / 64
_RANGE = 3 * _STEP
#: Of P(y = 1): a shifted base rate moves the log-odds by the logarithm of the ratio of odds, in
#: either direction; 4 is a fit on balanced rows where class 1 has 2%.
_LARGE_INTERCEPTS = (-4.0, -2.7, -1.7, 1.7, 2.7, 4.0)
#: Weights of temperatures, intercepts, wrong labels and local drifts, and, within these, of drifts
#: after which a classifier is too sure. Of P(y = 1), there are small and large intercepts, and
#: neither sign of an intercept or a local drift is more plausible.
_WEIGHTS = (0.23, 0.10, 0.02, 0.65)
_WEIGHTS_POSITIVE = (0.22, 0.22, 0.08, 0.02, 0.46)
_TOO_SURE = 0.7
#: The bound of a row's log likelihood ratio.
_MAX_LOG_RATIO = 4.0


@dataclass(frozen=True)
class Alternatives:
    """Plausible drifts: fixed curves of accuracy by confidence, tabulated by cell of confidence."""

    #: Accuracy minus confidence (M, J).
    deviations: Numbers
    #: Prior weight of each alternative (J,); the weights sum to 1.
    weights: Numbers
    #: Weight of each alternative as a drift that begins at a row, by the row's cell (M, J); the
    #: weights of a cell sum to 1.
    onsets: Numbers
    #: The log likelihood ratio of an alternative to the confidence, for a row that is wrong or
    #: correct, (2, M, J). It is clipped, so that no row outweighs all others.
    log_ratios: Numbers


@cache
def alternatives(target: Target = "top_label") -> Alternatives:
    """Return the alternatives of a target, a table of constants."""
    angles = (np.arange(_CELLS) + 0.5) / _CELLS * np.pi / 2
    confidences = clip(np.sin(angles) ** 2)[:, None]
    if target == "top_label":
        shares: tuple[float, ...] = _WEIGHTS
        too_sure = _TOO_SURE
        families = [
            _temperatures(confidences, _RIVALS),
            _intercepts(confidences, _INTERCEPTS, too_sure),
            _wrong_labels(confidences, 0.0),
        ]
    else:
        shares, too_sure = _WEIGHTS_POSITIVE, 0.5
        families = [
            _temperatures(confidences, {1.0: 1.0}),
            _intercepts(confidences, _INTERCEPTS, too_sure),
            _intercepts(confidences, _LARGE_INTERCEPTS, too_sure),
            _wrong_labels(confidences, 1.0),
        ]
    curves = [clip(curve) for curve, _ in families]
    local, local_weights = _local_drifts(angles, too_sure)
    truth = np.concatenate([*curves, local], axis=1)
    # A small drift takes long to show, so it has many rows at which to begin: a weight in
    # proportion to the divergence makes up for it.
    weights = [
        share * _normalised(weight * _divergence(curve, confidences).mean(axis=0))
        for share, (_, weight), curve in zip(shares[:-1], families, curves, strict=True)
    ]
    # A local drift begins at a row that shows it, so a range without traffic costs nothing.
    begins = shares[-1] * _normalised(local_weights * _divergence(local, confidences))
    everywhere = np.tile(np.concatenate(weights), (_CELLS, 1))
    ratios = np.stack([(1 - truth) / (1 - confidences), truth / confidences])
    return Alternatives(
        truth - confidences,
        np.concatenate([*weights, shares[-1] * _normalised(local_weights)]),
        np.concatenate([everywhere, begins], axis=1),
        np.clip(np.log(ratios), -_MAX_LOG_RATIO, _MAX_LOG_RATIO),
    )


def _temperatures(
    confidences: Numbers, weights_of: Mapping[float, float]
) -> tuple[Numbers, Numbers]:
    """Return curves (M, J) and their weights (J,), as the functions below do.

    `weights_of` has the weights of numbers of rivals.
    """
    slopes, rivals = (grid.ravel() for grid in np.meshgrid(_SLOPES, list(weights_of)))
    odds = slopes * scipy.special.logit(confidences) - (1 - slopes) * np.log(rivals)
    weights = np.array([weights_of[rival] for rival in rivals])
    return scipy.special.expit(odds), weights * _sureness(slopes < 1, _TOO_SURE)


def _intercepts(
    confidences: Numbers, values: Sequence[float], too_sure: float
) -> tuple[Numbers, Numbers]:
    intercepts = np.array(values)
    odds = scipy.special.logit(confidences) + intercepts
    return scipy.special.expit(odds), _sureness(intercepts < 0, too_sure)


def _wrong_labels(confidences: Numbers, other: float) -> tuple[Numbers, Numbers]:
    """`other` is the share of wrong labels that hit where the label was another."""
    noise = np.array(_NOISE)
    return (1 - noise) * confidences + other * noise * (1 - confidences), np.ones(len(_NOISE))


def _local_drifts(angles: Numbers, too_sure: float) -> tuple[Numbers, Numbers]:
    middles = _STEP * np.arange(1, round(np.pi / 2 / _STEP))
    heights = np.clip(2.5 - 4 * np.abs(angles[:, None] - middles) / _RANGE, 0, 1)
    shifts = np.concatenate([-_SHIFT * heights, _SHIFT * heights], axis=1)
    curves = np.sin(np.clip(angles[:, None] + shifts, 0, np.pi / 2)) ** 2
    return clip(curves), _sureness(np.repeat([True, False], len(middles)), too_sure)


def _sureness(is_too_sure: NDArray[np.bool_], weight: float) -> Numbers:
    return np.where(is_too_sure, weight, 1 - weight)


def _divergence(truth: Numbers, confidences: Numbers) -> Numbers:
    rel_entr = scipy.special.rel_entr
    return rel_entr(truth, confidences) + rel_entr(1 - truth, 1 - confidences)


def _normalised(weights: Numbers) -> Numbers:
    return weights / weights.sum(axis=-1, keepdims=True)


def confidence_cells(confidences: Numbers) -> NDArray[np.intp]:
    """Return the index of the cell of each confidence."""
    angles = np.arcsin(np.sqrt(confidences)) * (2 / np.pi)
    return np.minimum((angles * _CELLS).astype(np.intp), _CELLS - 1)


def clip(q: Numbers) -> Numbers:
    """Return probabilities clipped inside (0, 1)."""
    return np.minimum(np.maximum(q, EDGE), 1 - EDGE)
