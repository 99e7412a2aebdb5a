"""Negative log-likelihood of scores that are linear in their parameters, and its derivatives.

Scores are s_ik = θ_k · φ_ik, one row θ_k of parameters for each class k. A design defines the
features φ: `DiagonalDesign` uses the class's own feature, (x_ik, 1); `FullDesign` uses the features
of all classes, (x_i1, ..., x_iK, 1). The objective

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
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from recalib.core.arrays import Floats, Integers

Numbers = NDArray[np.float64]
_Floating = type[np.floating[Any]]

#: Elements of one chunk: a handful of such arrays fit into a second-level cache.
_CHUNK = 32_768
#: The same for matrix products, which fewer rows would make wait for the matrix to be read.
_LARGE_CHUNK = 65_536
#: Multiplications up to which OpenBLAS leaves a product on one thread: 4 · 65,536, its constant.
_ONE_THREAD = 262_144
#: Elements from which a pass is shared out to threads: below, starting them costs more.
_SHARED = 20 * _CHUNK
#: The largest K for which `FullDesign` keeps a block of second derivatives for each class: summing
#: K blocks of K² costs N K³, and a product with the Hessian costs N K².
MAX_BLOCKS = 40
#: A block of second derivatives is made invertible by this share of its largest diagonal element.
_JITTER = 1e-9
_TINY = float(np.finfo(np.float64).tiny)

Solve = Callable[[Numbers], Numbers]


class Design(Protocol):
    """What the features of a class are."""

    @property
    def common(self) -> slice:
        """The columns of θ whose features are the same for all classes."""
        ...

    def chunk(self, classes: int) -> int:
        """Return the rows of a chunk."""
        ...

    def scores(self, x: Floats, theta: Floats) -> Floats:
        """Return Σ_d θ_kd φ_ikd, (N, K)."""
        ...

    def features(self, x: Floats, k: int) -> Floats:
        """Return φ_ik, (N, D), of class k."""
        ...

    def gather(self, x: Floats, g: Floats) -> Floats:
        """Return Σ_i g_ik φ_ikd, (K, D): the transpose of `scores`."""
        ...

    def curvature(self, x: Floats, d: Floats) -> Floats:
        """Return Σ_i d_ik φ_ik φ_ikᵀ in the form that `inverse` takes; chunks are summed."""
        ...

    def inverse(self, curvature: Numbers, ridge: Numbers) -> Solve:
        """Return an approximate solver for the Hessian's blocks, with 2 · `ridge` added.

        Parameters
        ----------
        curvature: as `curvature` returns it, or flat.
        """
        ...


@dataclass(frozen=True)
class DiagonalDesign:
    """Each class from its own feature: φ_ik = (x_ik, 1), or (x_ik) without an intercept."""

    intercept: bool = True

    @property
    def common(self) -> slice:
        return slice(1, 2)  # empty without an intercept

    def chunk(self, classes: int) -> int:
        return max(1, _CHUNK // classes)

    def scores(self, x: Floats, theta: Floats) -> Floats:
        s = x * theta[:, 0]
        if self.intercept:
            s += theta[:, 1]
        return s

    def features(self, x: Floats, k: int) -> Floats:
        own = x[:, k : k + 1]
        return np.concatenate([own, np.ones_like(own)], axis=1) if self.intercept else own

    def gather(self, x: Floats, g: Floats) -> Floats:
        slopes = _down(x, g)
        if not self.intercept:
            return slopes[:, None]
        return np.stack([slopes, g.sum(axis=0)], axis=1)

    def curvature(self, x: Floats, d: Floats) -> Floats:
        dx = d * x
        sums = [_down(dx, x)]
        if self.intercept:
            sums += [dx.sum(axis=0), d.sum(axis=0)]
        return np.stack(sums, axis=1)

    def inverse(self, curvature: Numbers, ridge: Numbers) -> Solve:
        curvature = curvature.reshape(len(ridge), -1)
        a = _positive(curvature[:, 0] + 2 * ridge[:, 0])
        if not self.intercept:
            return lambda r: r / a[:, None]
        c = _positive(curvature[:, 2] + 2 * ridge[:, 1])
        # A correlation of 1 (all x equal) would leave a determinant of 0.
        limit = (1 - _JITTER) * np.sqrt(a * c)
        b = np.clip(curvature[:, 1], -limit, limit)
        determinant = a * c - b * b

        def solve(r: Numbers) -> Numbers:
            first = (c * r[:, 0] - b * r[:, 1]) / determinant
            second = (a * r[:, 1] - b * r[:, 0]) / determinant
            return np.stack([first, second], axis=1)

        return solve


@dataclass(frozen=True)
class FullDesign:
    """Each class from the features of all: φ_i = (x_i1, ..., x_iK, 1)."""

    @property
    def common(self) -> slice:
        return slice(None)

    def chunk(self, classes: int) -> int:
        if classes <= MAX_BLOCKS:
            return _ONE_THREAD // (classes + 1) ** 2
        return max(256, _LARGE_CHUNK // classes)

    def scores(self, x: Floats, theta: Floats) -> Floats:
        s: Floats = x @ theta[:, :-1].T
        s += theta[:, -1]
        return s

    def features(self, x: Floats, k: int) -> Floats:
        return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)

    def gather(self, x: Floats, g: Floats) -> Floats:
        return np.concatenate([g.T @ x, g.sum(axis=0)[:, None]], axis=1)

    def curvature(self, x: Floats, d: Floats) -> Floats:
        phi = self.features(x, 0)
        if x.shape[1] <= MAX_BLOCKS:
            blocks: Floats = (d.T[:, None, :] * phi.T) @ phi
            return blocks
        mean = d.mean(axis=1, keepdims=True)
        return np.concatenate([d.T @ (phi * phi), (phi * mean).T @ phi], dtype=x.dtype)

    def inverse(self, curvature: Numbers, ridge: Numbers) -> Solve:
        classes, features = ridge.shape
        if classes <= MAX_BLOCKS:
            return _block_inverse(curvature.reshape(classes, features, features), ridge)
        curvature = curvature.reshape(-1, features)
        # The moments are weighed by the mean over classes of p (1 − p).
        return _shared_inverse(curvature[:classes], curvature[classes:], ridge)


@dataclass(frozen=True, eq=False)
class RidgePenalty:
    """The penalty Σ strength ∘ (θ − centre)² + tied Σ_k (θ_kk − mean_j θ_jj)².

    Parameters
    ----------
    strength, centre: (K, D).
    """

    strength: Numbers
    centre: Numbers
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
        return self.strength + self.tied * np.eye(*self.strength.shape)

    def _pull(self, theta: Numbers) -> Numbers:
        """Return the slope of what ties the diagonal, (K, D); it is linear in `theta`."""
        slope = np.zeros_like(theta)
        diagonal = np.diagonal(theta)
        np.fill_diagonal(slope, 2 * self.tied * (diagonal - diagonal.mean()))
        return slope


class LinearNll:
    """The objective f on given rows, for `recalib.fitting.newton_cg`.

    Parameters
    ----------
    design: what the features of a class are.
    x: (N, K), finite everywhere.
    masked: (N, K), where a class is masked, or none where none is.
    labels, weights: (N,); weights with mean 1, or none.
    ridge: the penalty; None: none.
    """

    def __init__(
        self,
        design: Design,
        x: Floats,
        masked: NDArray[np.bool_] | None,
        labels: Integers,
        weights: Numbers | None = None,
        ridge: RidgePenalty | None = None,
    ) -> None:
        self.design, self.x, self.masked = design, x, masked
        self.labels, self.weights = labels, weights
        self.ridge = ridge
        step = design.chunk(x.shape[1])
        self._chunks = [slice(i, i + step) for i in range(0, len(x), step)]

    def around(self, theta: Numbers, dtype: _Floating = np.float64) -> _Around:
        """Return f around `theta`; `dtype` is that of the passes, sums are float64."""
        p = np.empty(self.x.shape, dtype)
        narrow = theta.astype(dtype)

        def of_chunk(rows: slice) -> Numbers:
            x = self.x[rows].astype(dtype, copy=False)
            s = self.design.scores(x, narrow)
            if self.masked is not None:
                s[self.masked[rows]] = -np.inf
            s -= s.max(axis=1, keepdims=True)
            true = np.arange(len(s)), self.labels[rows]
            label_scores = s[true]
            g = np.exp(s, out=s)
            total = g.sum(axis=1)
            g /= total[:, None]
            p[rows] = g
            losses = np.log(total) - label_scores
            g[true] -= 1
            weights = None if self.weights is None else self.weights[rows]
            if weights is not None:
                g *= weights[:, None].astype(dtype)
                losses = losses * weights
            value = losses.sum(dtype=np.float64)
            gathered = self.design.gather(x, g).astype(np.float64, copy=False)
            return np.append(gathered.reshape(-1), value)

        sums = self.total(of_chunk) / len(self.x)
        value, gradient = float(sums[-1]), sums[:-1].reshape(theta.shape)
        if self.ridge is not None:
            penalty, slope = self.ridge.value_and_gradient(theta)
            value, gradient = value + penalty, gradient + slope
        return _Around(self, p, value, gradient)

    def total(self, of_chunk: Callable[[slice], Numbers]) -> Numbers:
        """Return the sum of a function over all chunks of rows."""
        if self.x.size < _SHARED:
            return _sum_chunks(of_chunk, self._chunks)
        threads = min(os.cpu_count() or 1, len(self._chunks))
        shares = [self._chunks[i::threads] for i in range(threads)]
        with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of the interpreter
            sums = list(pool.map(lambda share: _sum_chunks(of_chunk, share), shares))
        return _sum_chunks(sums.__getitem__, range(threads))


class _Around:
    """f around one θ: what `newton_cg.Local` asks for."""

    def __init__(self, nll: LinearNll, p: Floats, value: float, gradient: Numbers) -> None:
        self._nll, self._p = nll, p
        self.value, self.gradient = value, gradient
        self.noise = float(np.finfo(p.dtype).eps) * max(1.0, abs(value))

    def product(self, direction: Numbers) -> Numbers:
        nll, dtype = self._nll, self._p.dtype
        narrow = direction.astype(dtype)

        def of_chunk(rows: slice) -> Numbers:
            x, p = nll.x[rows].astype(dtype, copy=False), self._p[rows]
            t = nll.design.scores(x, narrow)
            t -= np.vecdot(p, t)[:, None]
            t *= p
            if nll.weights is not None:
                t *= nll.weights[rows, None].astype(dtype)
            return nll.design.gather(x, t).astype(np.float64, copy=False)

        product = nll.total(of_chunk) / len(nll.x)
        return product if nll.ridge is None else product + nll.ridge.product(direction)

    def curvature(self) -> Numbers:
        """Return the mean over rows of what `Design.inverse` takes."""
        nll, dtype = self._nll, self._p.dtype

        def of_chunk(rows: slice) -> Numbers:
            x, p = nll.x[rows].astype(dtype, copy=False), self._p[rows]
            d = p * (1 - p)
            if nll.weights is not None:
                d *= nll.weights[rows, None].astype(dtype)
            return nll.design.curvature(x, d).astype(np.float64, copy=False)

        return nll.total(of_chunk) / len(nll.x)

    def preconditioner(self) -> Solve:
        ridge = self._nll.ridge
        if ridge is None:
            zeros = np.zeros_like(self.gradient)
            ridge = RidgePenalty(zeros, zeros)
        return ridge.inverse(self._nll.design, self.curvature())


class LinearSums(Protocol):
    """Means over rows that are elsewhere: in files, on other machines, on a device.

    Each is that of a `LinearNll` of all rows without ridge, around θ (K, D).
    """

    def around(self, theta: Numbers) -> tuple[float, Numbers, Numbers]:
        """Return the NLL, its gradient (K, D), and the mean of `Design.curvature`, flat."""
        ...

    def product(self, theta: Numbers, direction: Numbers) -> Numbers:
        """Return the Hessian times `direction`, (K, D)."""
        ...


class SummedNll:
    """The objective f on rows that are only summed, for `recalib.fitting.newton_cg`."""

    def __init__(self, design: Design, sums: LinearSums, ridge: RidgePenalty) -> None:
        self.design, self.sums, self.ridge = design, sums, ridge

    def around(self, theta: Numbers) -> _SummedAround:
        """Return f around `theta`."""
        return _SummedAround(self, theta)


class _SummedAround:
    """f around one θ: what `newton_cg.Local` asks for."""

    def __init__(self, nll: SummedNll, theta: Numbers) -> None:
        self._nll, self._theta = nll, theta
        value, gradient, self._curvature = nll.sums.around(theta)
        penalty, slope = nll.ridge.value_and_gradient(theta)
        self.value, self.gradient = value + penalty, gradient + slope
        self.noise = float(np.finfo(np.float64).eps) * max(1.0, abs(self.value))

    def product(self, direction: Numbers) -> Numbers:
        product = self._nll.sums.product(self._theta, direction)
        return product + self._nll.ridge.product(direction)

    def preconditioner(self) -> Solve:
        return self._nll.ridge.inverse(self._nll.design, self._curvature)


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


def _sum_chunks(of_chunk: Callable[[Any], Numbers], chunks: Any) -> Numbers:
    total: Numbers | None = None
    for chunk in chunks:
        part = of_chunk(chunk)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None  # noqa: S101 - there is at least one row
    return total


def _down(a: Floats, b: Floats) -> Floats:
    """Return the product of each column of `a` with that of `b`."""
    return np.einsum("nk,nk->k", a, b)  # type: ignore[no-any-return]


def _positive(diagonal: Numbers) -> Numbers:
    """Return a diagonal of second derivatives without its zeros, which saturation leaves."""
    largest = float(diagonal.max())
    return np.maximum(diagonal, _JITTER * largest if largest > 0 else 1.0)


def _block_inverse(blocks: Numbers, ridge: Numbers) -> Solve:
    """Return the solver by one block (D, D) for each class."""
    at = np.arange(ridge.shape[1])
    blocks = blocks.copy()
    blocks[:, at, at] = _positive(blocks[:, at, at] + 2 * ridge)
    blocks[:, at, at] *= 1 + _JITTER
    inverse = np.linalg.inv(blocks)
    return lambda r: np.matmul(inverse, r[:, :, None])[:, :, 0]


def _shared_inverse(diagonals: Numbers, moments: Numbers, ridge: Numbers) -> Solve:
    """Return the solver that takes the blocks of all classes for one matrix on other scales.

    Block k is share_k C + 2 ρ I, C the features' second moments and ρ the ridge off the diagonal,
    so that one decomposition of C inverts every block. The ridge differs on the slope and the
    intercept of a class; Woodbury's identity of rank 2 corrects for that. The inverse is then
    scaled from both sides so that its block has the diagonal of the Hessian's.

    Parameters
    ----------
    diagonals: (K, D), of the Hessian without the ridge.
    """
    classes = len(ridge)
    k = np.arange(classes)
    share = diagonals[:, -1] / max(float(diagonals[:, -1].mean()), _TINY)
    shared = share[:, None] * np.diagonal(moments) + 2 * ridge
    factors = np.sqrt(_positive(shared) / _positive(diagonals + 2 * ridge))
    values, vectors = np.linalg.eigh(moments)
    scales = share[:, None] * np.maximum(values, 0.0) + 2 * ridge[0, 1]
    scales = np.maximum(scales, max(_JITTER * float(scales.max()), _TINY))
    # The two columns of each inverse block that the correction needs: its own, and the last.
    inverse = (vectors[:classes] / scales) @ vectors.T
    last = (vectors[-1] / scales) @ vectors.T
    added = 2 * (np.stack([ridge[k, k], ridge[:, -1]]) - ridge[0, 1])
    # (I + diag(added) · corner)⁻¹ diag(added), for each class.
    corner = np.stack([inverse[k, k], inverse[k, -1], last[k, k], last[k, -1]]).reshape(
        2, 2, classes
    )
    inside = np.eye(2)[:, :, None] + added[:, None] * corner
    determinant = inside[0, 0] * inside[1, 1] - inside[0, 1] * inside[1, 0]
    # At least what rounding leaves of a matrix that is positive.
    determinant = np.maximum(determinant, _JITTER)

    def solve(r: Numbers) -> Numbers:
        plain: Numbers = (((factors * r) @ vectors) / scales) @ vectors.T
        a, b = added[0] * plain[k, k], added[1] * plain[:, -1]
        first = (inside[1, 1] * a - inside[0, 1] * b) / determinant
        second = (inside[0, 0] * b - inside[1, 0] * a) / determinant
        plain -= first[:, None] * inverse
        plain -= second[:, None] * last
        plain *= factors
        return plain

    return solve
