"""Matrix scaling: every calibrated logit is an affine function of all logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recalib.maps.base import Map, Parameter
from recalib.maps.ridge import Ridge, Strength, check_square, ridge_penalty, square
from recalib.ops.base import Array, Ops

__all__ = ["Matrix"]


@dataclass(frozen=True)
class Matrix(Map):
    """Matrix scaling with ODIR: p = softmax(W z + b).

    Fitted with off-diagonal and intercept regularisation, ODIR = λ / (K (K − 1)) Σ_{j≠k} W_jk²
    + μ / K Σ b_k², λ = `off_diagonal` and μ = `intercept`. The diagonal is free. The penalty does
    not shrink with N, but each weight's share of it does with K: for fewer than some ten rows for
    each of the K² weights, `structured_matrix` is the safer choice.

    Predictions may change, and adding a number to a row of logits changes the result.

    Parameters: `matrix` (K, K), the transpose of W, so that column k makes score k, per unit of
    the logits; `bias` (K,), in nats. At most 5,000 classes.

    Source: Guo et al. 2017, section 4.2, regularised as in Kull et al. 2019, section 4.
    """

    off_diagonal: Strength = 100.0
    intercept: Strength = 0.1

    name: ClassVar[str] = "matrix"
    summary: ClassVar[str] = "a full matrix on the logits, off-diagonal and intercept penalised"
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = False
    passes_masks: ClassVar[bool] = False

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "matrix": Parameter((classes, classes), "real", (0, 1)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> dict[str, NDArray[np.float64]]:
        check_square(self.name, classes)
        return {"matrix": np.eye(classes) / temperature, "bias": np.zeros(classes)}

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        return ops.matmul(logits, parameters["matrix"]) + parameters["bias"]

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: int) -> Array:
        classes = len(parameters["bias"])
        return ridge_penalty(self.ridges(classes, rows), ops, parameters)

    def ridges(self, classes: int, rows: int) -> Mapping[str, Ridge]:
        each = self.off_diagonal / (classes * (classes - 1))
        strengths = square(classes, diagonal=0.0, elsewhere=each)
        return {
            "matrix": Ridge(strengths, np.zeros((classes, classes))),
            "bias": Ridge(np.full(classes, self.intercept / classes), np.zeros(classes)),
        }
