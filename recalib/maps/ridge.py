"""What holds a map with many parameters to a simple one: squared distances, weighed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.ops.base import Array, Ops

__all__ = [
    "Ridge",
    "Ridged",
    "Strength",
    "by_rows",
    "check_square",
    "odir",
    "ridge_penalty",
    "square",
]

#: A strength of regularisation, as an option: finite, so that no product with it is NaN.
Strength = Annotated[float, msgspec.Meta(ge=0, le=1e12)]

#: A K x K matrix of float64 is 200 MB here, and a fit holds about ten of its size.
_MOST_CLASSES = 5_000


@dataclass(frozen=True)
class Ridge:
    """The penalty Σ strength · (θ − centre)² of one parameter θ; both as arrays of its shape.

    The diagonal of a matrix is tied together by as much as `tied` Σ_k (θ_kk − mean_j θ_jj)².
    """

    strength: NDArray[np.float64]
    centre: NDArray[np.float64]
    tied: float = 0.0


class Ridged(Protocol):
    """A map whose penalty is a sum of ridges: for those, quadratic solvers are exact."""

    def ridges(self, classes: int, rows: int) -> Mapping[str, Ridge]:
        """Return the ridge of each parameter that has one, for K = `classes` and N = `rows`."""
        ...


def ridge_penalty(ridges: Mapping[str, Ridge], ops: Ops, parameters: Mapping[str, Array]) -> Array:
    """Return Σ strength · (θ − centre)² over the parameters named in `ridges`."""
    total: Array = 0.0
    for name, ridge in ridges.items():
        away = parameters[name] - ops.constant(ridge.centre)
        total = total + (ops.constant(ridge.strength) * away * away).sum()
        if ridge.tied:
            diagonal = parameters[name].diagonal()
            total = total + ((diagonal - diagonal.mean()) ** 2).sum() * ridge.tied
    return total


def by_rows(strength: float | None, worth: float, rows: int) -> float:
    """Return a strength, or where none is given `worth` / `rows`: what fades as rows are added."""
    return worth / rows if strength is None else strength


def odir(
    classes: int, *, diagonal: float, off_diagonal: float, intercept: float
) -> Mapping[str, Ridge]:
    """Return the ridges of off-diagonal and intercept regularisation, with a tied diagonal.

    δ/K Σ_k (W_kk − mean_j W_jj)² + λ/(K (K − 1)) Σ_{j≠k} W_jk² + μ/K Σ b_k², for δ = `diagonal`,
    λ = `off_diagonal`, μ = `intercept`. Kull et al. 2019 have δ = 0. Where all three are large,
    W = I / T and b = 0 are left: temperature scaling.
    """
    strengths = square(classes, diagonal=0.0, elsewhere=off_diagonal / (classes * (classes - 1)))
    return {
        "matrix": Ridge(strengths, np.zeros((classes, classes)), diagonal / classes),
        "bias": Ridge(np.full(classes, intercept / classes), np.zeros(classes)),
    }


def square(classes: int, *, diagonal: float, elsewhere: float) -> NDArray[np.float64]:
    """Return a (K, K) matrix of two numbers."""
    return np.where(np.eye(classes, dtype=np.bool_), diagonal, elsewhere)


def check_square(name: str, classes: int) -> None:
    """Raise `InputError` for more classes than a map with a K x K matrix takes."""
    if classes > _MOST_CLASSES:
        raise InputError(
            "map",
            found=f"{name}, whose matrix for {classes} classes has {classes**2:,} numbers",
            accepted=f"at most {_MOST_CLASSES} classes; for more, structured_vector or temperature",
        )
