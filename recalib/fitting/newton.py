"""One temperature by negative log-likelihood: Newton's method on 1/T, safeguarded.

The objective f(β) = mean(log Σ exp(β z) − β z_y), β = 1/T, is convex, and its two derivatives are
moments of the softmax: f' = mean(E z − z_y), f'' = mean(Var z). One pass over the logits computes
all three, in chunks that fit into the processor's cache. Large data takes three phases: a
subsample, a pass in float32, which is twice as fast, and usually one pass in float64, which alone
determines the final error. The third derivative from the subsample corrects most of the error of a
Newton step (Chebyshev's method), which saves a pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers
from recalib.fitting.problem import End, TemperatureFit

Weights = NDArray[np.float64]

#: Elements of one chunk: two float64 arrays of it fit into a second-level cache of 1 MiB.
_CHUNK = 32_768
#: Elements of a chunk where the spread of the logits is measured, to bound memory.
_SCALE_CHUNK = 4_000_000
#: Elements of a sample of rows that gives the scale, and the least rows of it.
_SCALE_SAMPLE, _SCALE_ROWS = 20_000, 100
#: Rows of the subsample that warms the start.
_SUBSAMPLE = 2_000
#: Temperatures are sought within this factor of the logits' own scale, both ways: at 1/1000 of
#: it, a typical gap between two logits is a probability of exp(−1000), and beyond 1000 times it,
#: the prediction is uniform to three digits.
_RANGE = 1_000.0
#: A logit this many scales under the row's largest has a probability of exactly 0 at every
#: temperature in range: what −inf becomes, since −inf · 0 would be NaN in the moments.
_MASKED = -1e6
#: The search ends after a step this small relative to β: its error is of the order of its square,
_TOLERANCE = 1e-5
#: and with the third derivative of a subsample at most a hundredth of that.
_BENT_TOLERANCE = 1e-4
#: If the predicted gain of a step is below this, the search continues at the end of the range.
_MIN_GAIN = 1e-10
_MAX_STEPS = 100


@dataclass(frozen=True)
class _Moments:
    """f, f' and f'' at one β."""

    value: float
    slope: float
    curvature: float


def fit_temperature(
    logits: Floats,
    labels: Integers,
    weights: Weights | None = None,
    *,
    device: str | None = None,
) -> TemperatureFit:
    """Return the T > 0 that minimises the mean negative log-likelihood of softmax(z / T).

    The search ends with a step that leaves an error of the order of 10⁻¹⁰, relative to 1/T, or
    on a bound of [scale / 1000, scale · 1000], where scale is the median over rows of the distance
    of a row's largest logit from its median, see `logit_scale`, which no outlier moves. Separable
    data ends on the lower bound and labels that are all wrong on the upper one; constant logits,
    on which no temperature has an effect, give 1.

    Parameters
    ----------
    logits: (N, K), checked; −inf masks a class.
    labels: (N,), checked.
    weights: (N,), positive, on any scale; None if all are 1. A sum below the number of rows that
        `logit_scale` takes makes the bounds less exact.
    device: a device of torch that rows pass through in chunks; by default NumPy sums.
    """
    scale, tops = _scale(logits, weights)
    if scale == 0:
        nll = float(np.average(np.log(np.isfinite(logits).sum(axis=1)), weights=weights))
        return TemperatureFit(1.0, nll, is_constant=True)
    if not 1e-12 < scale < 1e12:  # so that no square leaves the range of float32
        scaled = fit_temperature(logits.astype(np.float64) / scale, labels, weights, device=device)
        return replace(scaled, temperature=scaled.temperature * scale)
    moments_of = partial(_moments_of, tops=tops) if device is None else partial(_moments_on, device)
    start, steps, tolerance, bend = 1.0, 0, _TOLERANCE, 0.0
    if len(logits) > 4 * _SUBSAMPLE:
        # Evenly spaced rows are deterministic and independent of sorted blocks in the file.
        rows = np.linspace(0, len(logits) - 1, _SUBSAMPLE).astype(np.intp)
        sample_weights = None if weights is None else weights[rows]
        sample = _moments_of(logits[rows], labels[rows], sample_weights, scale)
        start, at, steps = _minimise(sample, start, 1e-2)
        bend = _bend(sample, start, at)
        coarse = moments_of(logits, labels, weights, scale, np.float32)
        start, _, more = _minimise(coarse, start, 3e-2 if bend else 1e-3, bend)
        start, steps = min(max(start, 1 / _RANGE), _RANGE), steps + more
        tolerance = _BENT_TOLERANCE if bend else _TOLERANCE
    beta, at, more = _minimise(moments_of(logits, labels, weights, scale), start, tolerance, bend)
    return _result(beta, at, scale, steps, more)


def fit_temperature_by_sums(
    sums: Callable[[float], NDArray[np.float64]],
    weight: float,
    scale: float,
    sample_logits: Floats,
    sample_labels: Integers,
    sample_weights: Weights | None = None,
) -> TemperatureFit:
    """Return the temperature as `fit_temperature` does, for rows that are only summed.

    A sample gives the start, so that one or two sums over all rows remain.

    Parameters
    ----------
    sums: returns `moment_sums` of all rows, in float64, for β in units of 1/scale.
    weight: Σw, which is N for equal weights.
    scale: `logit_scale` of the rows; positive.
    sample_logits, sample_labels, sample_weights: some of the rows, (n, K), (n,) and (n,), with
        weights on any scale, or None.
    """

    def at(beta: float) -> _Moments:
        value, slope, curvature = (float(total) for total in sums(beta) / weight)
        return _Moments(value, slope, curvature)

    sample = _moments_of(sample_logits, sample_labels, sample_weights, scale)
    start, there, steps = _minimise(sample, 1.0, 1e-2)
    bend = _bend(sample, start, there)
    tolerance = _BENT_TOLERANCE if bend else _TOLERANCE
    beta, here, more = _minimise(at, min(max(start, 1 / _RANGE), _RANGE), tolerance, bend)
    return _result(beta, here, scale, steps, more)


def _result(beta: float, at: _Moments, scale: float, before: int, steps: int) -> TemperatureFit:
    ends: dict[float, End] = {_RANGE: "lower", 1 / _RANGE: "upper"}
    return TemperatureFit(
        temperature=scale / beta,
        nll=at.value,
        iterations=before + steps,
        converged=steps < _MAX_STEPS,
        end=ends.get(beta),
    )


def _minimise(
    moments: Callable[[float], _Moments], beta: float, tolerance: float, bend: float = 0.0
) -> tuple[float, _Moments, int]:
    """Return the minimiser in [1/_RANGE, _RANGE], the moments there, and the steps taken.

    A step that would leave the bracket known to hold the minimum goes to its geometric middle
    instead, or first to the end of the range, to learn whether that end is the answer. The last
    step is corrected by `bend`, f''' / f'', where that is known.
    """
    low, high = 1 / _RANGE, _RANGE
    low_seen = high_seen = False
    for step in range(1, _MAX_STEPS + 1):
        at = moments(beta)
        if at.slope < 0:
            low, low_seen = beta, True
        else:
            high, high_seen = beta, True
        if (beta == _RANGE and at.slope <= 0) or (beta == 1 / _RANGE and at.slope >= 0):
            return beta, at, step
        if at.slope == 0 and at.curvature == 0:
            return _RANGE, at, step  # every label has probability 1: separable
        change = -at.slope / at.curvature if at.curvature > 0 else np.inf * -np.sign(at.slope)
        if abs(change) <= tolerance * beta:
            change -= bend * change**2 / 2
            return beta + change, replace(at, value=at.value + at.slope * change / 2), step
        if high - low <= 1e-12 * low:
            return beta, at, step
        if at.slope < 0 and not high_seen and -at.slope * change < _MIN_GAIN:
            beta = high  # nearly separable: Newton steps of equal length would take hundreds
            continue
        beta = beta + change
        if beta >= high:
            beta = high if not high_seen else float(np.sqrt(low * high))
        elif beta <= low:
            beta = low if not low_seen else float(np.sqrt(low * high))
    return beta, at, _MAX_STEPS


def _bend(moments: Callable[[float], _Moments], beta: float, at: _Moments) -> float:
    """Return f''' / f'' near the minimiser β, or 0 where a step could not be corrected by it."""
    if at.curvature <= 0:
        return 0.0
    nearby = beta * 1.01
    bend = (moments(nearby).curvature / moments(beta).curvature - 1) / (nearby - beta)
    # Of a step of 3%, no more than a tenth of it: else the next term would count as well.
    return bend if abs(bend) * beta < 6 else 0.0


def _moments_of(
    logits: Floats,
    labels: Integers,
    weights: Weights | None,
    scale: float,
    dtype: type[np.floating[Any]] = np.float64,
    tops: Floats | None = None,
) -> Callable[[float], _Moments]:
    """Return the function from β (in units of 1/scale) to the moments over all rows.

    `tops` (N,) are the largest logits of rows: in short rows they take as long as the other sums.
    """
    threads = (os.cpu_count() or 1) if logits.size > 20 * _CHUNK else 1
    parts = [part for part in np.array_split(np.arange(len(logits)), threads) if len(part)]
    ranges = [slice(int(part[0]), int(part[-1]) + 1) for part in parts]
    masks = has_masks(logits, scale)
    total = len(logits) if weights is None else weights.sum()

    def of_range(rows: slice, beta: float) -> NDArray[np.float64]:
        block_weights = None if weights is None else weights[rows]
        block_tops = None if tops is None else tops[rows]
        return moment_sums(
            logits[rows], labels[rows], block_weights, scale, beta, masks, dtype, block_tops
        )

    def at(beta: float) -> _Moments:
        if len(ranges) == 1:
            sums = of_range(ranges[0], beta)
        else:  # NumPy releases the GIL in its loops
            with ThreadPoolExecutor(len(ranges)) as pool:
                sums = np.sum(list(pool.map(of_range, ranges, [beta] * len(ranges))), axis=0)
        value, slope, curvature = sums / total
        return _Moments(float(value), float(slope), float(curvature))

    return at


def _moments_on(
    device: str,
    logits: Floats,
    labels: Integers,
    weights: Weights | None,
    scale: float,
    dtype: type[np.floating[Any]] = np.float64,
) -> Callable[[float], _Moments]:
    """Return the same function, computed on a device of torch."""
    # Imported here because torch takes a second, and sums by NumPy do not need it.
    from recalib.fitting.chunk_sums import chunked_moment_sums
    from recalib.fitting.row_chunks import RowChunks

    chunks = RowChunks(logits, labels, weights, device)
    weight = len(logits) if weights is None else weights.sum()

    def at(beta: float) -> _Moments:
        sums = chunked_moment_sums(chunks, scale, beta, _MASKED, dtype)
        value, slope, curvature = (float(total) for total in sums / weight)
        return _Moments(value, slope, curvature)

    return at


def moment_sums(
    logits: Floats,
    labels: Integers,
    weights: Weights | None,
    scale: float,
    beta: float,
    masks: bool,
    dtype: type[np.floating[Any]] = np.float64,
    tops: Floats | None = None,
) -> NDArray[np.float64]:
    """Return Σ over rows of w [−log p(y), its slope, its curvature], for β in units of 1/scale.

    `tops` (N,) are the largest logits of rows, if they are known.
    """
    step = max(1, _CHUNK // logits.shape[1])
    # Reuse two buffers: new pages cost as much as the sums.
    z_of, p_of = np.empty((2, min(step, len(logits)), logits.shape[1]), dtype)
    sums = np.zeros(3)
    for start in range(0, len(logits), step):
        rows = slice(start, start + step)
        n = len(labels[rows])
        z, p = z_of[:n], p_of[:n]
        top = logits[rows].max(axis=1) if tops is None else tops[rows]
        np.subtract(logits[rows], top.astype(dtype)[:, None], out=z, casting="same_kind")
        if masks:
            np.maximum(z, _MASKED * scale, out=z)
        np.exp(np.multiply(z, beta / scale, out=p), out=p)
        # einsum takes a quarter of the time of `sum` in short rows.
        total = np.einsum("ij->i", p)
        mean = np.einsum("ij->i", np.multiply(p, z, out=p)) / total
        square = np.vecdot(p, z) / total
        true = z[np.arange(n), labels[rows]]
        terms = np.log(total) - true * (beta / scale), mean - true, square - mean * mean
        if weights is None:
            parts = [np.sum(term, dtype=np.float64) for term in terms]
        else:
            parts = [np.vecdot(weights[rows], term.astype(np.float64)) for term in terms]
        sums += parts[0], parts[1] / scale, parts[2] / scale**2
    return sums


def has_masks(logits: Floats, scale: float) -> bool:
    """Return whether a logit may be too low for the moments, as −inf is."""
    return float(logits.min(initial=0.0)) < _MASKED * scale


def _scale(logits: Floats, weights: Weights | None) -> tuple[float, Floats]:
    """Return the unit of the logits, 0 if those of each row are equal, and max z (N,)."""
    step = max(1, _SCALE_CHUNK // logits.shape[1])
    blocks = [logits[i : i + step] for i in range(0, len(logits), step)]
    lowest, tops, spreads = zip(*map(ends_and_spreads, blocks), strict=True)
    top = np.concatenate(tops)
    spread = float(np.average(np.concatenate(spreads).astype(np.float64), weights=weights))
    # Rounding error in the mean of equal numbers is not a spread.
    noise = float(np.finfo(logits.dtype).eps) * max(abs(min(lowest)), abs(float(top.max())))
    return logit_scale(logits, weights, spread) if spread > noise else 0.0, top


def logit_scale(logits: Floats, weights: Weights | None, spread: float) -> float:
    """Return the median over evenly spaced rows of max z − median z, masked classes left out.

    Parameters
    ----------
    weights: (N,), positive; a row of weight w is as w rows. None if all are 1.
    spread: what replaces a median of 0, as of rows with one high logit among ties.
    """
    rows, classes = logits.shape
    ends = np.arange(1.0, rows + 1) if weights is None else np.cumsum(weights)
    count = max(1, int(min(ends[-1], max(_SCALE_ROWS, _SCALE_SAMPLE // classes))))
    places = np.linspace(0, max(ends[-1] - 1, 0.0), count)
    ordered = np.sort(logits[np.searchsorted(ends[:-1], places, "right")], axis=1)
    unmasked = np.count_nonzero(ordered != -np.inf, axis=1)
    middle = ordered[np.arange(count), classes - 1 - unmasked // 2]
    scale = float(np.median(ordered[:, -1].astype(np.float64) - middle))
    return scale if scale > 0 else spread


def ends_and_spreads(logits: Floats) -> tuple[float, Floats, Floats]:
    """Return the least finite logit, and max z and max z − mean z of each row (N,)."""
    lowest, tops = float(logits.min()), logits.max(axis=1)
    if np.isfinite(lowest):
        means = np.einsum("ij->i", logits, dtype=np.float64) / logits.shape[1]
        return lowest, tops, tops - means
    finite = np.isfinite(logits)
    unmasked = np.where(finite, logits, 0.0).astype(np.float64)
    spread = tops - unmasked.sum(axis=1) / finite.sum(axis=1)
    return float(unmasked.min()), tops, spread
