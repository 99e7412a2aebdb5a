"""Histogram binning: the share of hits among rows of like confidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec

from recalib.maps.base import Map, Parameter
from recalib.maps.lookup_table import cell_indices, even
from recalib.maps.one_vs_rest import class_odds, masked_again
from recalib.maps.top_label import join, shares, split
from recalib.ops.base import Array, Ops

__all__ = ["HistogramBinning"]


@dataclass(frozen=True)
class HistogramBinning(Map):
    """Histogram binning on top of temperature scaling, p = softmax(z / T).

    A bin with N_b rows, C_b hits among them and mean probability m_b answers
    g_b = (C_b + min(m_b, ½)) / (N_b + 1): its share of hits and one row more, which is never a
    sure hit nor a sure miss. A bin without rows answers the probability in its middle.

    - `top_label`: bins are of the largest probability; it becomes g_b, the others share the rest
      as before. It never falls behind the next class, so that no prediction changes.
    - `one_vs_rest`: bins of each class, a row being a hit where it is the label; each p_k becomes
      its g_b, and each row is divided by its sum. Predictions may change. A class without labels
      keeps its probability, in steps.

    Bins hold equal numbers of rows (`equal_mass`; for `one_vs_rest`, equal sums of p_k (1 − p_k):
    by number, nearly all bins would be of probabilities near 0) or are equally wide in p.

    Applying `one_vs_rest` takes a logarithm of each 1 − p and log₂ P gathers into a table for each
    class, over twenty times temperature scaling's time; `top_label` looks up one number a row.

    The result jumps at edges of bins: float32 and float64 can fall to different sides of one.

    Parameters, P the next power of two from `bins`: `temperature`, a scalar; `edges` (P − 1) of
    log-odds, padded beyond the last; `values` (P), log-odds of g_b for `top_label` and log g_b for
    `one_vs_rest`, which has a row of both for each class.

    Source: Zadrozny & Elkan 2001; top label: Gupta & Ramdas 2022. The smoothing is ours.
    """

    target: Literal["top_label", "one_vs_rest"] = "top_label"
    binning: Literal["equal_mass", "equal_width"] = "equal_mass"
    bins: Annotated[int, msgspec.Meta(ge=2, le=256)] = 15

    name: ClassVar[str] = "histogram_binning"
    summary: ClassVar[str] = "the share of hits in each bin of confidence, or of each class's p"
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    continuous: ClassVar[bool] = False
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    @property
    def preserves_accuracy(self) -> bool:  # type: ignore[override]
        return self.target == "top_label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        cells = even(self.bins)
        rows = () if self.target == "top_label" else (classes,)
        axes = tuple(range(len(rows)))
        return {
            "temperature": Parameter((), "log"),
            "edges": Parameter((*rows, cells - 1), "rising", axes),
            "values": Parameter((*rows, cells), "real", axes),
        }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        softened = logits / parameters["temperature"]
        if self.target == "top_label":
            rest = split(ops, softened)
            return join(ops, rest, self._steps(ops, rest.odds, parameters))
        scores = self._steps(ops, class_odds(ops, softened), parameters)
        return masked_again(ops, logits, scores)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self.target == "one_vs_rest":
            return super().probabilities(ops, logits, parameters)
        rest = split(ops, logits / parameters["temperature"])
        return shares(ops, rest, self._steps(ops, rest.odds, parameters))

    def _steps(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        cell = cell_indices(ops, odds, parameters["edges"], even(self.bins))
        return ops.gather(parameters["values"], cell)
