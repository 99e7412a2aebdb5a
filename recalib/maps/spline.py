"""Spline calibration: a smooth rising curve for P(y = 1), or from confidence to accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from recalib.core.field_types import Interval
from recalib.maps.base import Parameter
from recalib.maps.lookup_table import locate, next_power_of_two
from recalib.maps.odds_curve import OddsCurve
from recalib.maps.ridge import Strength
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class Spline(OddsCurve):
    """A monotone cubic spline of log-odds, after temperature scaling.

    With log-odds s under softmax(z / T), a probability becomes σ(G(s)), G' = Σ γ_j B_j(s), γ_j ≥ 0,
    where the B_j are quadratic B-splines, which sum to one. So G rises and has two continuous
    derivatives; it is s + constant if all γ are 1, and constant outside the outer knots, where
    P(y = 1) has ties.

    - `positive_class`, the default for K = 2: the curve is that of P(y = 1). It may cross ½, so
      predictions may change. T is `unit_of_log_odds`.
    - `top_label`, the default for K > 2: the curve is that of the prediction's confidence; the
      other classes keep their ratios. The confidence stays above the next class, so no prediction
      changes.

    It is fitted by the likelihood of hits with the penalty
    `smoothing` / 2 (Σ (γ_j − 1)² + c² / 4), c the value of G(s) − s at the first knot. The penalty
    favours G(s) = s.

    Gupta et al. fit a natural cubic spline to the cumulative fraction of hits by rank and take its
    derivative: an estimate of the same curve that may fall and may leave [0, 1].

    Parameters, P the next power of two from `pieces`: `temperature`, a scalar; `knots` (P + 1) of
    log-odds; `values` (P + 1) and `slopes` (P + 1) of G at them.

    Source: the task is that of Gupta et al. 2021; monotone P-splines: Pya & Wood 2015.
    """

    pieces: Annotated[int, Interval(ge=1, le=64)] = 8
    smoothing: Strength = 1.0
    target: Literal["positive_class", "top_label"] | None = None

    name: ClassVar[str] = "spline"
    summary: ClassVar[str] = "a smooth rising curve for P(y = 1), or for the confidence"
    older_options: ClassVar[Mapping[str, Any]] = {"target": "top_label"}

    def parameters(self, classes: int) -> Mapping[str, Parameter]:
        length = next_power_of_two(self.pieces) + 1
        return {
            "temperature": Parameter((), "log"),
            "knots": Parameter((length,), "rising"),
            "values": Parameter((length,), "real"),
            "slopes": Parameter((length,), "real"),
        }

    def curve(self, ops: Ops, odds: Array, parameters: Mapping[str, Array]) -> Array:
        position = locate(ops, odds, parameters["knots"], next_power_of_two(self.pieces))
        y0, y1 = self._ends(ops, parameters["values"], position.cell)
        m0, m1 = self._ends(ops, parameters["slopes"], position.cell)
        # Cubic Hermite form: the curve and its slope are continuous for any parameters.
        t = position.fraction
        rise = y1 - y0
        first, last = m0 * position.width - rise, rise - m1 * position.width
        bump = (1.0 - t) * t
        return y0 + rise * t + bump * (first * (1.0 - t) + last * t)

    @staticmethod
    def _ends(ops: Ops, table: Array, cell: Array) -> tuple[Array, Array]:
        return ops.gather(table, cell), ops.gather(table, cell + 1.0)
