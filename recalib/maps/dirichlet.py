"""Dirichlet calibration: matrix scaling of log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from recalib.maps.base import Map, Parameter
from recalib.maps.ridge import Ridge, Strength, check_square, ridge_penalty, square
from recalib.ops.base import Array, Ops

__all__ = ["Dirichlet"]


@dataclass(frozen=True)
class Dirichlet(Map):
    """Dirichlet calibration: p = softmax(W log softmax(z) + b).

    It is the right map where the probabilities of each true class are Dirichlet distributed.
    Fitted with one of two penalties, λ = `strength` and μ = `intercept`:

    - `odir`: λ / (K (K − 1)) Σ_{j≠k} W_jk² + μ / K Σ b_k², the diagonal free;
    - `l2`: λ / K² Σ W_jk² + μ / K Σ b_k², the diagonal drawn to 0 with the rest, and so every
      prediction to the uniform one.

    Where no λ is given, it is 100 for `odir` and 0.1 for `l2`: the first was the best of 0.01 to
    100 on halves of a real validation set and on synthetic data, K = 10 and 30; the second costs a
    diagonal of 1 no more than 0.1 / K.

    Predictions may change; adding a number to a row of logits changes nothing.

    Parameters: `matrix` (K, K), the transpose of W, so that column k makes score k; `bias` (K,),
    in nats. At most 5,000 classes.

    Source: Kull et al. 2019, eq. 4 (linear parametrisation) and section 4 (ODIR). Their L2 is the
    sum over all weights and intercepts, not divided by their numbers.
    """

    regularisation: Literal["odir", "l2"] = "odir"
    strength: Strength | None = None
    intercept: Strength = 0.1

    name: ClassVar[str] = "dirichlet"
    summary: ClassVar[str] = "a full matrix on the log-probabilities, penalised by ODIR or L2"
    preserves_accuracy: ClassVar[bool] = False
    shift_invariant: ClassVar[bool] = True
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
        return ops.matmul(ops.log_softmax(logits), parameters["matrix"]) + parameters["bias"]

    def penalty(self, ops: Ops, parameters: Mapping[str, Array], rows: int) -> Array:
        classes = len(parameters["bias"])
        return ridge_penalty(self.ridges(classes, rows), ops, parameters)

    def ridges(self, classes: int, rows: int) -> Mapping[str, Ridge]:
        if self.regularisation == "odir":
            strength = 100.0 if self.strength is None else self.strength
            each = strength / (classes * (classes - 1))
            strengths = square(classes, diagonal=0.0, elsewhere=each)
        else:
            strength = 0.1 if self.strength is None else self.strength
            strengths = np.full((classes, classes), strength / classes**2)
        return {
            "matrix": Ridge(strengths, np.zeros((classes, classes))),
            "bias": Ridge(np.full(classes, self.intercept / classes), np.zeros(classes)),
        }
