"""Isotonic calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec

from recalib.maps.base import Map, Parameter
from recalib.maps.lookup_table import interpolate, next_power_of_two
from recalib.maps.one_vs_rest import class_log_odds, restore_mask
from recalib.maps.top_label import split_top_label, top_label_logits, top_label_probabilities
from recalib.ops.base import Array, Ops

__all__ = ["Isotonic"]


@dataclass(frozen=True)
class Isotonic(Map):
    """Isotonic calibration on top of temperature scaling, p = softmax(z / T).

    Isotonic regression of hits on log-odds s gives blocks of rows with one fraction of hits each,
    smoothed as in histogram binning: g_b = (C_b + min(m_b, ½)) / (N_b + 1). The curve passes
    through the blocks' means (s_b, g_b), is linear between them and constant outside. It is
    continuous, while the regression itself is a step function.

    - `top_label`: a curve for the largest probability, in log-odds; the other classes keep their
      ratios. It stays above the next class, so no prediction changes.
    - `one_vs_rest`: a curve for each class, with label k as a hit, in log p; each row is divided by
      its sum. Predictions may change. A class without labels keeps its probability.

    A curve has at most `knots` blocks and a slope of at most 10 nats per nat, because float32 could
    not follow a steeper one. Neighbouring blocks are merged until this holds.

    Applying `one_vs_rest` takes about forty times as long as temperature scaling: a logarithm of
    each 1 − p and log₂ P lookups for each class. `top_label` looks up one number a row.

    Parameters, P the next power of two from `knots`: `temperature`, a scalar; `knots` (P + 1) of
    log-odds, padded beyond the last; `values` (P + 1), logit g for `top_label`, log g for
    `one_vs_rest`, which has a row of both for each class.

    Source: Zadrozny & Elkan 2002; top label: Gupta & Ramdas 2022. Smoothing and interpolation
    are added here.
    """

    target: Literal["top_label", "one_vs_rest"] = "top_label"
    knots: Annotated[int, msgspec.Meta(ge=2, le=256)] = 64

    name: ClassVar[str] = "isotonic"
    summary: ClassVar[str] = "a rising curve for the confidence, or for each class's probability"
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    @property
    def preserves_accuracy(self) -> bool:  # type: ignore[override]
        return self.target == "top_label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        length = next_power_of_two(self.knots) + 1
        rows = () if self.target == "top_label" else (classes,)
        axes = tuple(range(len(rows)))
        return {
            "temperature": Parameter((), "log"),
            "knots": Parameter((*rows, length), "rising", axes),
            "values": Parameter((*rows, length), "real", axes),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        softened = logits / parameters["temperature"]
        if self.target == "top_label":
            parts = split_top_label(ops, softened)
            return top_label_logits(ops, parts, self._curve(ops, parts.odds, parameters))
        scores = self._curve(ops, class_log_odds(ops, softened), parameters)
        return restore_mask(ops, logits, scores)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self.target == "one_vs_rest":
            return super().probabilities(ops, logits, parameters)
        parts = split_top_label(ops, logits / parameters["temperature"])
        return top_label_probabilities(ops, parts, self._curve(ops, parts.odds, parameters))

    def _curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        cells, knots, values = (
            next_power_of_two(self.knots),
            parameters["knots"],
            parameters["values"],
        )
        return interpolate(ops, odds, knots, values, cells)
