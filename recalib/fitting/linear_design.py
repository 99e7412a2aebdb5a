"""The features of scores that are linear in their parameters: a design says which they are.

Scores are s_ik = θ_k · φ_ik, one row θ_k of parameters for each class k. `DiagonalDesign` uses the
class's own feature, (x_ik, 1); `FullDesign` uses the features of all classes, (x_i1, ..., x_iK, 1).
Arrays may be tensors of torch.

Legend: N rows, K classes, D features of a class (2 or K + 1; without intercept, one less).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from recalib.core.arrays import Floats, Numbers
from recalib.fitting.rows import CHUNK, namespace

#: Elements of one chunk of matrix products, which fewer rows would make wait for the matrix to be
#: read.
_LARGE_CHUNK = 65_536
#: Multiplications up to which OpenBLAS leaves a product on one thread: 4 · 65,536, its constant.
_ONE_THREAD = 262_144
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
        return max(1, CHUNK // classes)

    def scores(self, x: Floats, theta: Floats) -> Floats:
        s = x * theta[:, 0]
        if self.intercept:
            s += theta[:, 1]
        return s

    def features(self, x: Floats, k: int) -> Floats:
        own = x[:, k : k + 1]
        return np.concatenate([own, np.ones_like(own)], axis=1) if self.intercept else own

    def gather(self, x: Floats, g: Floats) -> Floats:
        sums = [_down(x, g)]
        if self.intercept:
            sums.append(g.sum(axis=0))
        return namespace(x).stack(sums, axis=1)

    def curvature(self, x: Floats, d: Floats) -> Floats:
        dx = d * x
        sums = [_down(dx, x)]
        if self.intercept:
            sums += [dx.sum(axis=0), d.sum(axis=0)]
        return namespace(x).stack(sums, axis=1)

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
        xp: Any = namespace(x)
        return xp.concatenate([x, xp.ones_like(x[:, :1])], axis=1)

    def gather(self, x: Floats, g: Floats) -> Floats:
        columns = [g.T @ x, g.sum(axis=0)[:, None]]
        return namespace(x).concatenate(columns, axis=1)

    def curvature(self, x: Floats, d: Floats) -> Floats:
        phi = self.features(x, 0)
        if x.shape[1] <= MAX_BLOCKS:
            return (d.T[:, None, :] * phi.T) @ phi
        mean = d.mean(axis=1, keepdims=True)
        sums = [d.T @ (phi * phi), (phi * mean).T @ phi]
        return namespace(x).concatenate(sums)

    def inverse(self, curvature: Numbers, ridge: Numbers) -> Solve:
        classes, features = ridge.shape
        if classes <= MAX_BLOCKS:
            return _block_inverse(curvature.reshape(classes, features, features), ridge)
        curvature = curvature.reshape(-1, features)
        # The moments are weighed by the mean over classes of p (1 − p).
        return _shared_inverse(curvature[:classes], curvature[classes:], ridge)


def _down(a: Floats, b: Floats) -> Floats:
    """Return the product of each column of `a` with that of `b`."""
    return namespace(a).einsum("nk,nk->k", a, b)


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
