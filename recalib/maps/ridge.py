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

__all__ = ["Ridge", "Ridged", "Strength", "check_square", "ridge_penalty", "square"]

#: A strength of regularisation, as an option: finite, so that no product with it is NaN.
Strength = Annotated[float, msgspec.Meta(ge=0, le=1e12)]

#: A K x K matrix of float64 is 200 MB here, and a fit holds about ten of its size.
_MOST_CLASSES = 5_000


@dataclass(frozen=True)
class Ridge:
    """The penalty Σ strength · (θ − centre)² of one parameter θ; both as arrays of its shape."""

    strength: NDArray[np.float64]
    centre: NDArray[np.float64]


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
    return total


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
