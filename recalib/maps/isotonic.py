"""Isotonic calibration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from recalib.core.field_types import Interval
from recalib.maps.base import Parameter
from recalib.maps.lookup_table import interpolate, next_power_of_two
from recalib.maps.odds_curve import OddsCurve
from recalib.ops.base import Array, Ops

#: The least probability of a centred curve, whose logarithm is finite in float32.
LEAST = 1e-30


@dataclass(frozen=True)
class Isotonic(OddsCurve):
    """Isotonic calibration on top of temperature scaling, p = softmax(z / T).

    Isotonic regression of hits on log-odds s gives blocks of rows with one fraction of hits each,
    smoothed as in histogram binning: g_b = (C_b + a_b) / (N_b + 1). The curve passes
    through the blocks' means (s_b, g_b), is linear between them and constant outside. It is
    continuous, while the regression itself is a step function.

    - `positive_class`, the default for K = 2: a curve for P(y = 1), in log-odds, with y = 1 as a
      hit. It may cross ½, so predictions may change. Rows of one block get nearly one probability,
      so P(y = 1) never falls as z₁ − z₀ rises, but ROC AUC may change by ties.
    - `top_label`, the default for K > 2: a curve for the largest probability, in log-odds; the
      other classes keep their ratios. It stays above the next class, so no prediction changes.
    - `one_vs_rest`: a curve for each class, with label k as a hit, in log p; each row is divided by
      its sum. Predictions may change. A class without labels keeps its probability.

    `centred`: g_b = C_b / N_b, without the added row, and the curve is linear in g instead of its
    log-odds: centred isotonic regression. It rises strictly between the outer blocks. A block
    without hits has the probability 0 (1e-30), so one such label later costs 69 nats.

    A curve has at most `knots` blocks and a slope of at most 10 nats per nat, or 10 per nat if it
    is centred, because float32 could not follow a steeper one. Neighbouring blocks are merged until
    this holds.

    Applying `one_vs_rest` takes about forty times as long as temperature scaling: a logarithm of
    each 1 − p and log₂ P lookups for each class. The other targets look up one number a row.

    Parameters, P the next power of two from `knots`: `temperature`, a scalar; `knots` (P + 1) of
    log-odds, padded beyond the last; `values` (P + 1), logit g, or log g for `one_vs_rest`, which
    has a row of both for each class; g itself if the curve is centred. T is `unit_of_log_odds` for
    `positive_class`.

    Source: Zadrozny & Elkan 2002; top label: Gupta & Ramdas 2022; centred: Oron & Flournoy 2017.
    Smoothing and interpolation of log-odds are added here.
    """

    target: Literal["positive_class", "top_label", "one_vs_rest"] | None = None
    knots: Annotated[int, Interval(ge=2, le=256)] = 64
    centred: bool = False

    name: ClassVar[str] = "isotonic"
    summary: ClassVar[str] = (
        "a rising curve for P(y = 1), the confidence, or each class's probability"
    )

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        length = next_power_of_two(self.knots) + 1
        rows = (classes,) if self.target == "one_vs_rest" else ()
        axes = tuple(range(len(rows)))
        return {
            "temperature": Parameter((), "log"),
            "knots": Parameter((*rows, length), "rising", axes),
            "values": Parameter((*rows, length), "ascending" if self.centred else "real", axes),
        }

    def curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        cells = next_power_of_two(self.knots)
        values = interpolate(ops, odds, parameters["knots"], parameters["values"], cells)
        if not self.centred:
            return values
        log_p, log_q = (ops.log(ops.clip_min(p, LEAST)) for p in (values, 1.0 - values))
        return log_p if self.target == "one_vs_rest" else log_p - log_q
