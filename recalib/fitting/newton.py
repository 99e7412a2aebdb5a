"""One temperature by negative log-likelihood: Newton's method on 1/T, safeguarded.

The objective f(β) = mean(log Σ exp(β z) − β z_y), β = 1/T, is convex, and its two derivatives are
moments of the softmax: f' = mean(E z − z_y), f'' = mean(Var z). One pass over the logits computes
all three, in chunks that fit into the processor's cache. Large data takes three phases: a sample,
for arrays a pass in float32, which is twice as fast, and usually one pass in float64, which alone
determines the final error. The third derivative from the sample corrects most of the error of a
Newton step (Chebyshev's method), which saves a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.fitting.problem import End, TemperatureFit
from recalib.fitting.rows import CHUNK, ArrayRows, Block, Rows, as_numbers, namespace

#: Temperatures are sought within this factor of the logits' own scale, both ways: at 1/1000 of
#: it, a typical gap between two logits is a probability of exp(−1000), and beyond 1000 times it,
#: the prediction is uniform to three digits.
_RANGE = 1_000.0
#: A logit this many scales under the row's largest has a probability of exactly 0 at every
#: temperature in range: what −inf becomes, since −inf · 0 would be NaN in the moments.
_MASKED = -1e6
#: Of other scales, a square may leave the range of float32.
_USUAL_SCALES = 1e-12, 1e12
#: The search ends after a step this small relative to β: its error is of the order of its square,
_TOLERANCE = 1e-5
#: and with the third derivative of a sample at most a hundredth of that.
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
    logits: Floats, labels: Integers, weights: Numbers | None = None
) -> TemperatureFit:
    """Return `best_temperature` of rows in memory; the parameters are those of `ArrayRows`."""
    return best_temperature(ArrayRows(logits, labels, weights))


def best_temperature(rows: Rows) -> TemperatureFit:
    """Return the T > 0 that minimises the mean negative log-likelihood of softmax(z / T).

    The search ends with a step that leaves an error of the order of 10⁻¹⁰, relative to 1/T, or
    on a bound of [scale / 1000, scale · 1000], where scale is the median over rows of the distance
    of a row's largest logit from its median, see `logit_scale`, which no outlier moves. Separable
    data ends on the lower bound and labels that are all wrong on the upper one; constant logits,
    on which no temperature has an effect, give 1.
    """
    scale, sample = rows.scale, rows.sample
    if scale == 0:
        return TemperatureFit(
            1.0, float(rows.sum(_uniform_losses)[0]) / rows.weight, is_constant=True
        )
    start, steps, tolerance, bend = 1.0, 0, _TOLERANCE, 0.0
    if sample is not None:
        of_sample = partial(_moments_at, sample, scale)
        start, at, steps = _minimise(of_sample, start, 1e-2)
        bend = _bend(of_sample, start, at)
        tolerance = _BENT_TOLERANCE if bend else _TOLERANCE
        if rows.in_memory is not None and _USUAL_SCALES[0] < scale < _USUAL_SCALES[1]:
            coarse = partial(_moments_at, rows, scale, dtype="float32")
            start, _, more = _minimise(coarse, start, 3e-2 if bend else 1e-3, bend)
            steps += more
        start = min(max(start, 1 / _RANGE), _RANGE)
    beta, at, more = _minimise(partial(_moments_at, rows, scale), start, tolerance, bend)
    ends: dict[float, End] = {_RANGE: "lower", 1 / _RANGE: "upper"}
    converged = more < _MAX_STEPS
    return TemperatureFit(float(scale / beta), at.value, steps + more, converged, ends.get(beta))


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


def _moments_at(
    rows: Rows, scale: float, beta: float, dtype: Literal["float32", "float64"] = "float64"
) -> _Moments:
    """Return the moments at β, in units of 1/scale, over all rows."""
    sums = rows.sum(partial(moment_sums, scale, beta, dtype)) / rows.weight
    return _Moments(*sums.tolist())


def moment_sums(
    scale: float, beta: float, dtype: Literal["float32", "float64"], block: Block
) -> Numbers:
    """Return Σ over rows of w [−log p(y), its slope, its curvature], for β in units of 1/scale."""
    xp, (rows, classes) = namespace(block.logits), block.logits.shape
    numbers, wide = getattr(xp, dtype), xp.float64
    step = min(rows, max(1, CHUNK // classes)) if xp is np else rows
    unit = 1.0 if _USUAL_SCALES[0] < scale < _USUAL_SCALES[1] else scale
    scale /= unit
    # Reuse two buffers: new pages cost as much as the sums.
    z_of = xp.empty_like(block.logits[:step], dtype=numbers)
    p_of = xp.empty_like(z_of)
    sums = np.zeros(3)
    for logits, labels, weights, tops in block.parts(step):
        z, p = z_of[: len(labels)], p_of[: len(labels)]
        top = xp.amax(logits, axis=1) if tops is None else tops
        xp.subtract(logits, xp.asarray(top, dtype=numbers)[:, None], out=z)
        if unit != 1:
            z /= unit
        if z.min() < _MASKED * scale:
            xp.clip(z, _MASKED * scale, None, out=z)
        xp.exp(xp.multiply(z, beta / scale, out=p), out=p)
        # einsum takes a quarter of the time of `sum` in short rows.
        total = xp.einsum("ij->i", p)
        mean = xp.einsum("ij->i", xp.multiply(p, z, out=p)) / total
        square = xp.linalg.vecdot(p, z) / total
        true = z[xp.arange(len(labels), device=z.device), labels]
        terms = xp.log(total) - true * (beta / scale), mean - true, square - mean * mean
        for i, term in enumerate(terms):
            values = xp.asarray(term, dtype=wide)
            sums[i] += float(
                xp.sum(values) if weights is None else xp.linalg.vecdot(weights, values)
            )
    return np.asarray(sums / np.array([1, scale, scale**2]))


def _uniform_losses(block: Block) -> Numbers:
    """Return Σ w log of the number of classes that are not masked, (1,)."""
    xp = namespace(block.logits)
    losses = as_numbers(xp.log(xp.sum(xp.isfinite(block.logits), axis=1, dtype=xp.float64)))
    return np.array([losses.sum() if block.weights is None else losses @ as_numbers(block.weights)])
