"""Isotonic calibration: the best rising curve from confidence to the share of hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec

from recalib.maps.base import Map, Parameter
from recalib.maps.lookup_table import even, interpolate
from recalib.maps.one_vs_rest import class_odds, masked_again
from recalib.maps.top_label import join, shares, split
from recalib.ops.base import Array, Ops

__all__ = ["Isotonic"]


@dataclass(frozen=True)
class Isotonic(Map):
    """Isotonic calibration on top of temperature scaling, p = softmax(z / T).

    Isotonic regression of hits on log-odds s gives blocks of rows, each with one share of hits,
    smoothed as in histogram binning: g_b = (C_b + min(m_b, ½)) / (N_b + 1). The curve goes through
    the blocks' means (s_b, g_b), is linear between them and level beyond, and hence continuous,
    where the regression itself has steps.

    - `top_label`: the curve is of the largest probability, in log-odds; the others share the rest
      as before. It never falls behind the next class, so that no prediction changes.
    - `one_vs_rest`: a curve for each class, a row being a hit where it is the label, in log p; each
      row is divided by its sum. Predictions may change. A class without labels keeps its own
      probability.

    No curve has more than `knots` blocks, nor rises by more than 10 nats a nat: neighbours are
    merged until that holds, since float32 could not follow a steeper one.

    Applying `one_vs_rest` takes a logarithm of each 1 − p and log₂ P gathers into a table for each
    class, some forty times temperature scaling's time; `top_label` looks up one number a row.

    Parameters, P the next power of two from `knots`: `temperature`, a scalar; `knots` (P + 1) of
    log-odds, padded beyond the last; `values` (P + 1), logit g for `top_label`, log g for
    `one_vs_rest`, which has a row of both for each class.

    Source: Zadrozny & Elkan 2002; top label: Gupta & Ramdas 2022. Smoothing and interpolation are
    ours.
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
        length = even(self.knots) + 1
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
            rest = split(ops, softened)
            return join(ops, rest, self._curve(ops, rest.odds, parameters))
        scores = self._curve(ops, class_odds(ops, softened), parameters)
        return masked_again(ops, logits, scores)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self.target == "one_vs_rest":
            return super().probabilities(ops, logits, parameters)
        rest = split(ops, logits / parameters["temperature"])
        return shares(ops, rest, self._curve(ops, rest.odds, parameters))

    def _curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        cells, knots, values = even(self.knots), parameters["knots"], parameters["values"]
        return interpolate(ops, odds, knots, values, cells)
