"""Matrix scaling: every calibrated logit is an affine function of all logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.core.options import options_of
from recalib.maps.base import Parameters
from recalib.maps.ridge import (
    USUAL_STRENGTH,
    MatrixMap,
    Ridge,
    Strength,
    odir,
    unit_odir,
)
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class Matrix(MatrixMap):
    """Matrix scaling: p = softmax(W z + b).

    It is fitted with off-diagonal and intercept regularisation and a penalty on the variance of the
    diagonal:
    δ/K Σ_k (W_kk − mean_j W_jj)² + λ/(K (K − 1)) Σ_{j≠k} W_jk² + μ/K Σ b_k², δ = `diagonal`,
    λ = `off_diagonal` and μ = `intercept`. The limit of large strengths is temperature
    scaling.

    By default one factor g of the strengths is chosen by data, see `recalib.fitting.strength`, and
    the card has the values in `fit.settled`. They are g K²/N (δ and μ) and g K² (K − 1)²/N (λ), as
    in `structured_matrix`. Above 300 classes g = 10, because a choice would take longer than the
    fit. With δ = 0, as published, the held-out NLL was 4% above temperature scaling's at 500 rows
    for any λ and μ.

    Predictions may change, and adding a number to a row of logits changes the result. For K = 2, a
    fit has W = a I, of any sign: P(y = 1) = σ(a (z_1 − z_0) + b_1 − b_0).

    Parameters: `matrix` (K, K), the transpose of W (column k gives score k), per unit of
    the logits; `bias` (K,), in nats. Fits take at most 500 classes.

    Applying it takes a product with a K x K matrix, thirty times as long as temperature scaling at
    K = 1000.

    Source: Guo et al. 2017, section 4.2, regularised as in Kull et al. 2019, section 4; δ
    is added here.
    """

    diagonal: Strength | None = None
    off_diagonal: Strength | None = None
    intercept: Strength | None = None

    name: ClassVar[str] = "matrix"
    summary: ClassVar[str] = "a full matrix on the logits, off-diagonal and intercept penalised"
    shift_invariant: ClassVar[bool] = False

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return ops.matmul(logits, parameters["matrix"]) + parameters["bias"]

    def tie_classes(self, parameters: Parameters) -> Parameters:
        matrix = parameters["matrix"]
        slope = matrix.trace() - matrix.sum() / 2
        return {**parameters, "matrix": slope * np.eye(2)}

    def unit_strengths(self, classes: int, rows: float) -> Mapping[str, float]:
        return unit_odir(classes, rows)

    def ridges(self, classes: int, rows: float) -> Mapping[str, Ridge]:
        values = options_of(self.with_strength(USUAL_STRENGTH, classes, rows))
        return odir(classes, **values)
