"""Negative log-likelihood of scores that are linear in their parameters, and its derivatives.

Scores are s_ik = θ_k · φ_ik, one row θ_k of parameters for each class k, of the features φ of a
`Design`. The objective

    f(θ) = 1/N Σ_i w_i (log Σ_k exp s_ik − s_iy) + Σ strength ∘ (θ − centre)²

is convex, with gradient 1/N Σ w (p − e_y) φ and a Hessian whose product with a direction costs
what a gradient costs. All passes go over the rows in chunks that stay in the processor's cache,
and no array is larger than N x K or than the parameters.

Legend: N rows, K classes, D features of a class (2 or K + 1; without intercept, one less).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from operator import iadd
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers, Numbers
from recalib.fitting.linear_design import Design, Solve
from recalib.fitting.rows import CHUNK, Block, Rows, as_numbers, namespace

_Dtype = Literal["float32", "float64"]

#: Elements from which a pass is shared out to threads: below, starting them costs more.
_SHARED = 20 * CHUNK
#: A chunk on a device has this number of times the rows of one in a cache.
_ON_DEVICE = 16


@dataclass(frozen=True, eq=False)
class RidgePenalty:
    """The penalty Σ strength ∘ (θ − centre)² + tied Σ_k (θ_kk − mean_j θ_jj)².

    Parameters
    ----------
    strength, centre: (K, D); by default there is no penalty.
    """

    strength: Numbers | float = 0.0
    centre: Numbers | float = 0.0
    tied: float = 0.0

    def value_and_gradient(self, theta: Numbers) -> tuple[float, Numbers]:
        """Return the penalty and its gradient, (K, D)."""
        offset = theta - self.centre
        value = float(np.vdot(self.strength * offset, offset))
        gradient = 2 * self.strength * offset
        if self.tied:
            pull = self._pull(theta)
            value += float(np.vdot(theta, pull)) / 2
            gradient += pull
        return value, gradient

    def product(self, direction: Numbers) -> Numbers:
        """Return the penalty's Hessian times `direction`, (K, D)."""
        product = 2 * self.strength * direction
        return product + self._pull(direction) if self.tied else product

    def inverse(self, design: Design, curvature: Numbers) -> Solve:
        """Return an approximate inverse of the Hessian of the NLL and the penalty.

        Parameters
        ----------
        curvature: the mean over rows of `design.curvature`.
        """
        ridge = self.diagonal
        return _with_common(design.inverse(curvature, ridge), design.common, ridge)

    @property
    def diagonal(self) -> Numbers:
        """Half the penalty's second derivatives, (K, D)."""
        # The mean's own freedom is one direction of K: steps in it are too short at first.
        return self.strength + self.tied * np.eye(*np.shape(self.strength))

    def _pull(self, theta: Numbers) -> Numbers:
        """Return the slope of what ties the diagonal, (K, D); it is linear in `theta`."""
        slope = np.zeros_like(theta)
        diagonal = np.diagonal(theta)
        np.fill_diagonal(slope, 2 * self.tied * (diagonal - diagonal.mean()))
        return slope


NO_PENALTY = RidgePenalty()


class LinearNll:
    """The objective f on given rows, for `recalib.fitting.newton_cg`.

    Parameters
    ----------
    design: what the features of a class are.
    x: (N, K), finite everywhere; an array, or a tensor, as the other arguments are then.
    masked: (N, K), where a class is masked, or none where none is.
    labels, weights: (N,); weights with mean 1, or none.
    ridge: the penalty, by default none.
    """

    def __init__(
        self,
        design: Design,
        x: Floats,
        masked: NDArray[np.bool_] | None,
        labels: Integers,
        weights: Numbers | None = None,
        ridge: RidgePenalty = NO_PENALTY,
    ) -> None:
        self.design, self.x, self.masked = design, x, masked
        self.labels, self.weights = labels, weights
        self.ridge = ridge
        self.xp = namespace(x)
        step = design.chunk(x.shape[1]) * (1 if self.xp is np else _ON_DEVICE)
        self._chunks = [slice(i, i + step) for i in range(0, len(x), step)]

    def around(self, theta: Numbers, dtype: _Dtype = "float64") -> _Around:
        """Return f around `theta`; `dtype` is that of the passes, sums are float64."""
        xp, numbers = self.xp, getattr(self.xp, dtype)
        p = xp.empty_like(self.x, dtype=numbers)
        narrow = self.as_type(theta, numbers)

        def of_chunk(rows: slice) -> Numbers:
            x = self.as_type(self.x[rows], numbers)
            s: Any = self.design.scores(x, narrow)
            if self.masked is not None:
                s[self.masked[rows]] = -np.inf
            s -= xp.amax(s, axis=1, keepdims=True)
            true = xp.arange(len(s), device=s.device), self.labels[rows]
            label_scores = s[true]
            g = xp.exp(s, out=s)
            total = g.sum(axis=1)
            g /= total[:, None]
            p[rows] = g
            losses = xp.log(total) - label_scores
            g[true] -= 1
            if self.weights is not None:
                weights = self.weights[rows]
                g *= self.as_type(weights, numbers)[:, None]
                losses = losses * weights
            value = xp.sum(losses, dtype=xp.float64)
            gathered = self.as_type(self.design.gather(x, g), xp.float64).reshape(-1)
            return xp.concatenate([gathered, value.reshape(1)])

        sums = self.total(of_chunk) / len(self.x)
        penalty, slope = self.ridge.value_and_gradient(theta)
        return _Around(self, p, float(sums[-1]) + penalty, sums[:-1].reshape(theta.shape) + slope)

    def as_type(self, array: Any, dtype: Any) -> Any:
        """Return an array of the kind of x, of a type."""
        return self.xp.asarray(array, dtype=dtype, device=self.x.device)

    def total(self, of_chunk: Callable[[slice], Numbers]) -> Numbers:
        """Return the sum of a function over all chunks of rows."""
        if self.xp is not np or self.x.size < _SHARED:
            return as_numbers(reduce(iadd, map(of_chunk, self._chunks)))
        threads = min(os.cpu_count() or 1, len(self._chunks))
        shares = [self._chunks[i::threads] for i in range(threads)]
        with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of the interpreter
            return reduce(iadd, pool.map(lambda share: reduce(iadd, map(of_chunk, share)), shares))


class _Around:
    """f around one θ: what `newton_cg.Local` asks for."""

    def __init__(self, nll: LinearNll, p: Floats, value: float, gradient: Numbers) -> None:
        self._nll, self._p = nll, p
        self.value, self.gradient = value, gradient
        self.noise = float(nll.xp.finfo(p.dtype).eps) * max(1.0, abs(value))

    def product(self, direction: Numbers) -> Numbers:
        nll, dtype, xp = self._nll, self._p.dtype, self._nll.xp
        narrow = nll.as_type(direction, dtype)

        def of_chunk(rows: slice) -> Numbers:
            x, p = nll.as_type(nll.x[rows], dtype), self._p[rows]
            t = nll.design.scores(x, narrow)
            t -= xp.linalg.vecdot(p, t)[:, None]
            t *= p
            if nll.weights is not None:
                t *= nll.as_type(nll.weights[rows, None], dtype)
            return nll.as_type(nll.design.gather(x, t), xp.float64)

        return nll.total(of_chunk) / len(nll.x) + nll.ridge.product(direction)

    def curvature(self) -> Numbers:
        """Return the mean over rows of what `Design.inverse` takes."""
        nll, dtype, xp = self._nll, self._p.dtype, self._nll.xp

        def of_chunk(rows: slice) -> Numbers:
            x, p = nll.as_type(nll.x[rows], dtype), self._p[rows]
            d = p * (1 - p)
            if nll.weights is not None:
                d *= nll.as_type(nll.weights[rows, None], dtype)
            return nll.as_type(nll.design.curvature(x, d), xp.float64)

        return nll.total(of_chunk) / len(nll.x)

    def preconditioner(self) -> Solve:
        return self._nll.ridge.inverse(self._nll.design, self.curvature())


#: Returns f without penalty on the rows of a block.
OnBlock = Callable[[Block], LinearNll]


class SummedAround:
    """f around one θ on rows that are read again for each sum: what `newton_cg.Local` asks for.

    Parameters
    ----------
    nll_of: is sent to other machines.
    """

    def __init__(
        self, rows: Rows, nll_of: OnBlock, design: Design, ridge: RidgePenalty, theta: Numbers
    ) -> None:
        self._rows, self._nll_of, self._design = rows, nll_of, design
        self._ridge, self._theta = ridge, theta
        means = rows.sum(partial(_sums_around, nll_of, theta)) / rows.weight
        gradient, (value,), self._curvature = np.split(means, [theta.size, theta.size + 1])
        penalty, slope = ridge.value_and_gradient(theta)
        self.value, self.gradient = float(value) + penalty, gradient.reshape(theta.shape) + slope
        self.noise = float(np.finfo(np.float64).eps) * max(1.0, abs(self.value))

    def product(self, direction: Numbers) -> Numbers:
        sums = self._rows.sum(partial(_products, self._nll_of, self._theta, direction))
        return sums / self._rows.weight + self._ridge.product(direction)

    def preconditioner(self) -> Solve:
        return self._ridge.inverse(self._design, self._curvature)


def _sums_around(nll_of: OnBlock, theta: Numbers, block: Block) -> Numbers:
    """Return the sums over rows of the gradient, the value and the curvature, flat."""
    around = nll_of(block).around(theta)
    terms = around.gradient, around.value, around.curvature()
    return np.concatenate([np.ravel(term) for term in terms]) * len(block.labels)


def _products(nll_of: OnBlock, theta: Numbers, direction: Numbers, block: Block) -> Numbers:
    """Return the sum over rows of the product with the Hessian, (K, D)."""
    return nll_of(block).around(theta).product(direction) * len(block.labels)


def _with_common(blocks: Solve, common: slice, ridge: Numbers) -> Solve:
    """Return `blocks` plus an exact solver for what blocks cannot see: a number for all classes.

    Adding the same to all classes' θ of one column changes every score of a row alike, and so no
    probability: there is the ridge's curvature only, a millionth of what each block sees.
    """
    curvature = 2 * ridge[:, common].sum(axis=0)
    # Without a ridge there is no slope either, but for rounding.
    inverse = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=curvature > 0)

    def solve(r: Numbers) -> Numbers:
        solved = blocks(r)
        solved[:, common] += r[:, common].sum(axis=0) * inverse
        return solved

    return solve
