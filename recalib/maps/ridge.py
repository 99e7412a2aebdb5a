"""Ridge penalties: weighted squared distances of parameters from a simple map."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from recalib.core.field_types import Interval
from recalib.errors import InputError
from recalib.maps.base import Map, Parameter, Parameters
from recalib.ops.base import Array, Ops

#: A strength of regularisation, as an option; finite, so that products with it are not NaN.
Strength = Annotated[float, Interval(ge=0, le=1e12)]

#: The strength without data on it.
USUAL_STRENGTH = 10.0


@dataclass(frozen=True)
class Ridge:
    """The penalty Σ strength · (θ − centre)² of a parameter θ; both are arrays of its shape.

    `tied` adds `tied` Σ_k (θ_kk − mean_j θ_jj)² for the diagonal of a matrix.
    """

    strength: NDArray[np.float64]
    centre: NDArray[np.float64]
    tied: float = 0.0


@dataclass(frozen=True)
class RidgeMap(Map):
    """A map whose fit adds ridge penalties. Strengths without a value are chosen by data."""

    @abstractmethod
    def ridges(self, classes: int, rows: float) -> Mapping[str, Ridge]:
        """Return the penalties of the parameters, by name, for a fit on `rows` rows."""

    def unit_strengths(self, classes: int, rows: float) -> Mapping[str, float]:
        """Return the values of options at strength 1."""
        return {}

    def open_strengths(self, classes: int, rows: float) -> Mapping[str, float]:
        """Return the options without a value, with their values at strength 1."""
        values = self.unit_strengths(classes, rows)
        return {option: value for option, value in values.items() if getattr(self, option) is None}

    def with_strength(self, factor: float, classes: int, rows: float) -> Self:
        """Return the map with `factor` times strength 1 for each option without a value."""
        values: dict[str, Any] = {
            option: factor * value for option, value in self.open_strengths(classes, rows).items()
        }
        return replace(self, **values)

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: float) -> Array:
        classes = len(parameters["bias"])
        return ridge_penalty(self.ridges(classes, rows), ops, parameters)


@dataclass(frozen=True)
class MatrixMap(RidgeMap):
    """A map by a matrix (K, K) and an intercept for each class."""

    preserves_accuracy: ClassVar[bool] = False
    passes_masks: ClassVar[bool] = False
    #: The time grows with K³: 60 rows of 2,000 classes took more than a minute.
    max_classes: ClassVar[int | None] = 500

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "matrix": Parameter((classes, classes), "real", (0, 1)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> Parameters:
        return {"matrix": np.eye(classes) / temperature, "bias": np.zeros(classes)}


@dataclass(frozen=True)
class StructuredMap(RidgeMap):
    """A linear map of log softmax(z / T), of the best single T, with a strength of its penalty."""

    strength: Strength | None = None
    rows_per_parameter: Strength | None = None

    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strength is not None and self.rows_per_parameter is not None:
            raise InputError(
                "options.rows_per_parameter",
                found=f"{self.rows_per_parameter:g} with strength {self.strength:g}",
                accepted="one of the two",
            )

    def unit_strengths(self, classes: int, rows: float) -> Mapping[str, float]:
        return {"strength": 1.0} if self.rows_per_parameter is None else {}

    def class_share(self, classes: int, rows: float, *, numbers: int) -> float:
        """Return K `strength` / N, by default K (1 + r P / N) / N for P = `numbers` and N = `rows`.

        r is `rows_per_parameter`, by default 10.
        """
        r = 10.0 if self.rows_per_parameter is None else self.rows_per_parameter
        strength = 1 + r * numbers / rows if self.strength is None else self.strength
        return classes * (strength / rows)


def ridge_penalty(ridges: Mapping[str, Ridge], ops: Ops, parameters: Mapping[str, Array]) -> Array:
    """Return Σ strength · (θ − centre)² over the parameters named in `ridges`."""
    total: Array = 0.0
    for name, ridge in ridges.items():
        offset = parameters[name] - ops.constant(ridge.centre)
        total = total + (ops.constant(ridge.strength) * offset * offset).sum()
        if ridge.tied:
            diagonal = parameters[name].diagonal()
            total = total + ((diagonal - diagonal.mean()) ** 2).sum() * ridge.tied
    return total


def unit_odir(classes: int, rows: float) -> dict[str, float]:
    """Return the arguments of `odir` at strength 1, as `structured_matrix` has them."""
    share = classes**2 / rows
    return {"diagonal": share, "off_diagonal": share * (classes - 1) ** 2, "intercept": share}


def odir(
    classes: int, *, diagonal: float, off_diagonal: float, intercept: float
) -> Mapping[str, Ridge]:
    """Return the ridges of off-diagonal and intercept regularisation (ODIR) with a tied diagonal.

    δ/K Σ_k (W_kk − mean_j W_jj)² + λ/(K (K − 1)) Σ_{j≠k} W_jk² + μ/K Σ b_k², for δ = `diagonal`,
    λ = `off_diagonal`, μ = `intercept`. Kull et al. 2019 have δ = 0. The limit of large
    strengths is W = I / T and b = 0, temperature scaling.
    """
    strengths = diagonal_and_rest(
        classes, diagonal=0.0, elsewhere=off_diagonal / (classes * (classes - 1))
    )
    return {
        "matrix": Ridge(strengths, np.zeros((classes, classes)), diagonal / classes),
        "bias": Ridge(np.full(classes, intercept / classes), np.zeros(classes)),
    }


def diagonal_and_rest(classes: int, *, diagonal: float, elsewhere: float) -> NDArray[np.float64]:
    """Return a (K, K) matrix with one number on the diagonal and another elsewhere."""
    return np.where(np.eye(classes, dtype=np.bool_), diagonal, elsewhere)
