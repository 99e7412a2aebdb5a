"""Histogram binning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import msgspec

from recalib.maps.base import Map, Parameter
from recalib.maps.lookup_table import cell_indices, next_power_of_two
from recalib.maps.one_vs_rest import class_log_odds, restore_mask
from recalib.maps.top_label import split_top_label, top_label_logits, top_label_probabilities
from recalib.ops.base import Array, Ops

__all__ = ["HistogramBinning"]


@dataclass(frozen=True)
class HistogramBinning(Map):
    """Histogram binning on top of temperature scaling, p = softmax(z / T).

    A bin with N_b rows, C_b hits and mean probability m_b has the value
    g_b = (C_b + min(m_b, ½)) / (N_b + 1): its fraction of hits with one added row, so it is never
    0 or 1. A bin without rows has the probability at its middle.

    - `top_label`: bins of the largest probability, which becomes g_b; the other classes keep their
      ratios. It stays above the next class, so no prediction changes.
    - `one_vs_rest`: bins for each class, with label k as a hit; each p_k becomes its g_b, and each
      row is divided by its sum. Predictions may change. A class without labels keeps its
      probability, in steps.

    Bins have equal counts (`equal_mass`) or equal width in p. For `one_vs_rest`, `equal_mass` means
    equal sums of p_k (1 − p_k): with equal counts nearly all bins would be near p = 0.

    Applying `one_vs_rest` takes over twenty times as long as temperature scaling: a logarithm of
    each 1 − p and log₂ P lookups for each class. `top_label` looks up one number a row.

    The result jumps at the edges of bins, where float32 and float64 may choose different bins.

    Parameters, P the next power of two from `bins`: `temperature`, a scalar; `edges` (P − 1) of
    log-odds, padded beyond the last; `values` (P), log-odds of g_b for `top_label` and log g_b for
    `one_vs_rest`, which has a row of both for each class.

    Source: Zadrozny & Elkan 2001; top label: Gupta & Ramdas 2022. The smoothing is added here.
    """

    target: Literal["top_label", "one_vs_rest"] = "top_label"
    binning: Literal["equal_mass", "equal_width"] = "equal_mass"
    bins: Annotated[int, msgspec.Meta(ge=2, le=256)] = 15

    name: ClassVar[str] = "histogram_binning"
    summary: ClassVar[str] = "the fraction of hits in each bin of confidence, or of each class's p"
    shift_invariant: ClassVar[bool] = True
    passes_masks: ClassVar[bool] = True
    continuous: ClassVar[bool] = False
    fitted_by: ClassVar[Literal["gradient", "solver"]] = "solver"

    @property
    def preserves_accuracy(self) -> bool:  # type: ignore[override]
        return self.target == "top_label"

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        cells = next_power_of_two(self.bins)
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
            parts = split_top_label(ops, softened)
            return top_label_logits(ops, parts, self._steps(ops, parts.odds, parameters))
        scores = self._steps(ops, class_log_odds(ops, softened), parameters)
        return restore_mask(ops, logits, scores)

    def probabilities(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        if self.target == "one_vs_rest":
            return super().probabilities(ops, logits, parameters)
        parts = split_top_label(ops, logits / parameters["temperature"])
        return top_label_probabilities(ops, parts, self._steps(ops, parts.odds, parameters))

    def _steps(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        cell = cell_indices(ops, odds, parameters["edges"], next_power_of_two(self.bins))
        return ops.gather(parameters["values"], cell)
