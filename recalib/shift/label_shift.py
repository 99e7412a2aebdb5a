"""Label shift while serving: class shares of recent answers, and answers adapted to them.

Legend: N rows, K classes. π⁰ are the class shares of the calibration set, π those of now.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, check_labels, check_probabilities
from recalib.drift import estimate_priors
from recalib.errors import InputError
from recalib.shift.fixed_share import FixedShare

Values = NDArray[np.float64]

#: Pseudo-counts that are tried, as shares of the rows of a window.
PSEUDO_COUNTS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
#: A shift is adapted to if the gain on held-out rows exceeds this number of standard errors.
LEAST_GAIN = 2.0
#: The largest factor by which a weight changes from one state to the next.
MAX_STEP = 4.0
#: Of a window, the share of new rows after which there is a new state.
RENEWAL = 0.25
#: The end of the EM: the largest change of a share, and of steps, which are 0.6 ms with 10,000 rows
#: of 100 classes.
_TOLERANCE, _MAX_STEPS = 1e-5, 100


@dataclass(frozen=True)
class Adaptation:
    """A state of the adaptation: what an answer with its number was multiplied by."""

    #: From 1, ascending; 0 before the first shift.
    number: int
    #: w = π/π⁰, (K,); ones if no shift was found. A class that π⁰ does not have keeps 1.
    weights: tuple[float, ...]
    #: π, (K,).
    priors: tuple[float, ...]
    #: Rows of the window.
    rows: int
    #: By how many nats per row the shares explain held-out answers better than π⁰, without labels.
    gain: float


def window_rows(classes: int) -> int:
    """Return the rows of a window: 2,000 for 10 classes and 10,000 for 100, at most 20,000."""
    return int(min(max(2_000, 100 * classes), 20_000))


def adapt(p_nk: Floats, weights: Floats, applied: float = 1.0) -> Floats:
    """Return (1 − a) p + a q with q_k = p_k w_k / Σ_j p_j w_j, (N, K) of the type of `p_nk`.

    The rows keep their sum, and a probability 0 stays 0.

    Parameters
    ----------
    p_nk: calibrated probabilities, (N, K).
    weights: w = π/π⁰, (K,), of the type of `p_nk`.
    applied: a, in [0, 1]: the weight of the adapted answer.

    Source: Saerens, Latinne and Decaestecker 2002, equation 2.4.
    """
    sums = (p_nk @ weights)[:, None]
    # Where only classes of weight 0 are possible, the row stays as it is.
    factors: Floats = np.divide(weights, sums, out=np.ones_like(p_nk), where=sums > 0)
    factors *= applied
    factors += 1 - applied
    factors *= p_nk
    return factors


def gains(p_nk: Floats, labels: NDArray[np.integer], weights: Values) -> Values:
    """Return ln q(label) − ln p(label) = ln w_y − ln Σ_j p_j w_j of each row, (N,)."""
    sums = np.asarray(p_nk, np.float64) @ weights
    return np.asarray(np.log(weights[labels]) - np.log(sums))


def first_adaptation(classes: int) -> Adaptation:
    """Return the state before any shift, with number 0."""
    even = (1.0,) * classes
    return Adaptation(0, even, tuple(1 / classes for _ in even), 0, 0.0)


def next_adaptation(before: Adaptation, p_nk: Floats, priors: Values) -> Adaptation:
    """Return the state after a window of answers; `before` if no weight changes.

    π is the EM estimate with pseudo-counts c π⁰. The two halves of the window choose c: the shares
    from one half explain the answers of the other, Σ ln Σ_k p_k π_k/π⁰_k. If the best c gains no
    more than `LEAST_GAIN` standard errors over π⁰, there is no shift and the weights go back to
    ones. No weight changes by more than the factor `MAX_STEP`.

    Parameters
    ----------
    p_nk: the answers before any adaptation, calibrated for π⁰, (N, K).
    priors: π⁰, (K,).

    Raises
    ------
    InputError: shapes that do not fit, or fewer than 2 rows.
    """
    p = np.asarray(p_nk, np.float64)
    if p.ndim != 2 or len(p) < 2 or len(before.weights) != p.shape[1]:
        accepted = f"(N, {len(before.weights)}) with N ≥ 2"
        raise InputError("probabilities", found=f"{p.shape}", accepted=accepted)
    share, gain = _strength(p, priors)
    now = priors
    if share is not None:
        now = _estimate(p, priors, share)
    ratio = np.divide(now, priors, out=np.ones_like(now), where=priors > 0)
    old = np.array(before.weights)
    weights = np.clip(ratio, old / MAX_STEP, old * MAX_STEP)
    if np.array_equal(weights, old):
        return before
    return Adaptation(before.number + 1, tuple(weights.tolist()), tuple(now.tolist()), len(p), gain)


def _strength(p: Values, priors: Values) -> tuple[float | None, float]:
    """Return the pseudo-counts by share of rows, None without a shift, and the gain per row."""
    halves = p[::2], p[1::2]
    best, share, error = 0.0, None, 0.0
    for candidate in PSEUDO_COUNTS:
        explained = np.concatenate(
            [
                np.log(_sums(other, priors, _estimate(half, priors, candidate)))
                for half, other in (halves, halves[::-1])
            ]
        )
        mean = float(explained.mean())
        if mean <= best:  # fewer pseudo-counts explain still less
            break
        best, share = mean, candidate
        error = float(explained.std()) / np.sqrt(len(p))
    return (share if best > LEAST_GAIN * error else None), best


def _estimate(p: Values, priors: Values, share: float) -> Values:
    return estimate_priors(
        p, priors, pseudo_counts=share * len(p), tolerance=_TOLERANCE, max_steps=_MAX_STEPS
    )


def _sums(p: Values, priors: Values, now: Values) -> Values:
    """Return Σ_k p_k π_k/π⁰_k, (N,)."""
    ratio = np.divide(now, priors, out=np.ones_like(now), where=priors > 0)
    return np.asarray(p @ ratio)


@dataclass(eq=False)
class LabelShift:
    """The adaptation of a stream of answers, with the memory of one window.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> shift = LabelShift(np.array([0.5, 0.5]))
    >>> logits = rng.normal(1.5, 2, size=4000)  # class 1 has become more frequent
    >>> p = 1 / (1 + np.exp(-logits))
    >>> shift.add(np.stack([1 - p, p], axis=1))
    >>> shift.state.number > 0 and shift.state.priors[1] > 0.6
    True
    """

    #: π⁰, (K,).
    priors: Values
    #: Rows of a window; None: `window_rows`.
    window: int | None = None
    state: Adaptation = field(init=False)
    share: FixedShare = field(init=False, default=FixedShare())

    def __post_init__(self) -> None:
        priors = self.priors = np.asarray(self.priors, np.float64)
        if priors.ndim != 1 or not (priors >= 0).all() or abs(priors.sum() - 1) > 1e-6:
            accepted = "(K,), shares of 0 or more that sum to 1"
            raise InputError("priors", found=f"{priors!s:.80}", accepted=accepted)
        if self.window is not None and self.window < 2:
            raise InputError("window", found=f"{self.window}", accepted="at least 2 rows")
        self.state = first_adaptation(len(self.priors))
        self.window = self.window or window_rows(len(self.priors))
        self._rows = np.zeros((self.window, len(self.priors)), np.float32)
        #: Rows since the start, and until the next state.
        self._seen, self._due = 0, self.window

    def add(self, p_nk: Floats) -> None:
        """Take answers before any adaptation, (N, K), in the order of their predictions."""
        p_nk = self._check(p_nk)
        size, renewal = len(self._rows), max(1, round(RENEWAL * len(self._rows)))
        while len(p_nk):
            at = self._seen % size
            part = p_nk[: min(self._due, size - at)]
            self._rows[at : at + len(part)] = part
            self._seen += len(part)
            self._due -= len(part)
            p_nk = p_nk[len(part) :]
            if not self._due:
                self.state = next_adaptation(self.state, self._rows, self.priors)
                self._due = renewal

    def answer(self, p_nk: Floats) -> Floats:
        """Return the answers of now, (N, K): `p_nk` until a label has confirmed a shift."""
        p_nk = self._check(p_nk)
        weights = np.array(self.state.weights, p_nk.dtype)
        return adapt(p_nk, weights, self.share.applied if self.state.number else 0.0)

    def gains(self, p_nk: Floats, labels: NDArray[np.integer]) -> Values:
        """Return what the state of now gains on rows with a label, (N,) in nats, for `confirm`."""
        p_nk = self._check(p_nk)
        if not self.state.number or not len(p_nk):
            return np.zeros(len(p_nk))
        labels = check_labels(labels, logits=p_nk)
        return gains(p_nk, labels, np.array(self.state.weights))

    def confirm(self, differences: Values) -> None:
        """Update the weight by `gains` of labelled rows, each of the state that answered.

        Rows of the state before the first shift, whose gains are 0, confirm nothing.
        """
        values = np.asarray(differences, np.float64)
        if not np.isfinite(values).all():
            raise InputError("differences", found="NaN or infinity", accepted="finite numbers")
        self.share = self.share.add(values[values != 0].tolist())

    def _check(self, p_nk: Floats) -> Floats:
        return check_probabilities(p_nk, classes=len(self.priors)) if len(p_nk) else p_nk
