"""Structured matrix scaling: temperature scaling with a regularised matrix correction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from recalib.maps.base import Parameter, Parameters
from recalib.maps.ridge import Ridge, Strength, StructuredMap, diagonal_and_rest
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class StructuredMatrix(StructuredMap):
    """Structured matrix scaling: p = softmax(W log softmax(z / T) + b).

    T is the best single temperature by NLL and stays fixed. W and b start at W = I, b = 0, which
    is temperature scaling, with the penalty g K / N (`diagonal` Σ (W_kk − 1)² +
    `off_diagonal` (K − 1) Σ_{j≠k} W_jk² + `intercept` Σ b_k²). Times N, this is the negative
    logarithm of a normal prior of variance 1 / (2 g K) for the contribution of a class to its own
    score, and the same for the sum of the contributions of all others. g is `strength`; by default
    it is chosen by data, see `recalib.fitting.strength`, and the card has it in `fit.settled`.
    With `rows_per_parameter` = r it is 1 + r P / N for P = K (K + 1) numbers, and r = 10 is the
    default above 300 classes, where a choice would take longer than the fit.

    Predictions may change; adding a number to a row of logits changes nothing.

    Parameters: `temperature`, a scalar, in units of the logits; `matrix` (K, K), the transpose of
    W (column k gives score k); `bias` (K,), in nats. At most 5,000 classes.

    Applying it takes a product with a K x K matrix, thirty times as long as temperature scaling at
    K = 1000.

    Source: the hierarchy and the ridges follow Berta et al. 2026 (structured matrix scaling,
    ridge, ρ = τ = 1), with g instead of 1.
    """

    diagonal: Strength = 1.0
    off_diagonal: Strength = 1.0
    intercept: Strength = 1.0

    name: ClassVar[str] = "structured_matrix"
    summary: ClassVar[str] = "a temperature and a regularised matrix correction"
    passes_masks: ClassVar[bool] = False
    #: A K x K matrix of float64 takes 200 MB at this K, and a fit holds about ten.
    max_classes: ClassVar[int | None] = 5_000

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        return {
            "temperature": Parameter((), "log"),
            "matrix": Parameter((classes, classes), "real", (0, 1)),
            "bias": Parameter((classes,), "real", (0,)),
        }

    def start(self, classes: int, temperature: float) -> Parameters:
        return {
            "temperature": np.array(temperature),
            "matrix": np.eye(classes),
            "bias": np.zeros(classes),
        }

    def stages(self, classes: int) -> tuple[tuple[str, ...], ...]:
        return (("matrix", "bias"),)

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        softened = ops.log_softmax(logits / parameters["temperature"])
        return ops.matmul(softened, parameters["matrix"]) + parameters["bias"]

    def ridges(self, classes: int, rows: float) -> Mapping[str, Ridge]:
        share = self.class_share(classes, rows, numbers=classes * (classes + 1))
        elsewhere = share * (classes - 1) * self.off_diagonal
        strengths = diagonal_and_rest(classes, diagonal=share * self.diagonal, elsewhere=elsewhere)
        return {
            "matrix": Ridge(strengths, np.eye(classes)),
            "bias": Ridge(np.full(classes, share * self.intercept), np.zeros(classes)),
        }
