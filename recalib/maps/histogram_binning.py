"""Histogram binning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from recalib.core.field_types import Interval
from recalib.maps.base import Parameter
from recalib.maps.lookup_table import count_edges, next_power_of_two
from recalib.maps.odds_curve import OddsCurve
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class HistogramBinning(OddsCurve):
    """Histogram binning on top of temperature scaling, p = softmax(z / T).

    A bin with N_b rows, C_b hits and mean probability m_b has g_b = (C_b + a_b) / (N_b + 1): its
    fraction of hits with one added row, so it is never 0 or 1. a_b = min(m_b, ½), and the share of
    y = 1 in all rows for `positive_class`. A bin without rows has the probability at its middle.

    - `positive_class`, the default for K = 2: bins of P(y = 1), with y = 1 as a hit. g_b may be on
      the other side of ½, so predictions may change. Bins are not merged: g_b may fall.
    - `top_label`, the default for K > 2: bins of the largest probability, which becomes g_b; the
      other classes keep their ratios. It stays above the next class, so no prediction changes.
    - `one_vs_rest`: bins for each class, with label k as a hit; each p_k becomes its g_b, and each
      row is divided by its sum. Predictions may change. A class without labels keeps its
      probability, in steps.

    Bins have equal counts (`equal_mass`) or equal width in p. For `one_vs_rest`, `equal_mass` means
    equal sums of p_k (1 − p_k): with equal counts nearly all bins would be near p = 0.

    Applying `one_vs_rest` takes over twenty times as long as temperature scaling: a logarithm of
    each 1 − p and log₂ P lookups for each class. The other targets look up one number a row.

    The result jumps at the edges of bins, where float32 and float64 may choose different bins.

    Parameters, P the next power of two from `bins`: `temperature`, a scalar; `edges` (P − 1) of
    log-odds, padded beyond the last; `values` (P), log-odds of g_b, or log g_b for `one_vs_rest`,
    which has a row of both for each class. T is `unit_of_log_odds` for `positive_class`.

    Source: Zadrozny & Elkan 2001; top label: Gupta & Ramdas 2022. The smoothing is added here.
    """

    target: Literal["positive_class", "top_label", "one_vs_rest"] | None = None
    binning: Literal["equal_mass", "equal_width"] = "equal_mass"
    bins: Annotated[int, Interval(ge=2, le=256)] = 15

    name: ClassVar[str] = "histogram_binning"
    summary: ClassVar[str] = (
        "the fraction of hits in each bin of P(y = 1), of confidence, or each p"
    )
    continuous: ClassVar[bool] = False

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        cells = next_power_of_two(self.bins)
        rows = (classes,) if self.target == "one_vs_rest" else ()
        axes = tuple(range(len(rows)))
        return {
            "temperature": Parameter((), "log"),
            "edges": Parameter((*rows, cells - 1), "rising", axes),
            "values": Parameter((*rows, cells), "real", axes),
        }

    def curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        cell = count_edges(ops, odds, parameters["edges"], next_power_of_two(self.bins))
        return ops.gather(parameters["values"], cell)
