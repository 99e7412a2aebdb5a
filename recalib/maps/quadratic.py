"""Quadratic calibration: logistic in the log-odds, with a quadratic term."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from recalib.maps.base import Link
from recalib.maps.one_vs_rest import ClassCurves, class_log_odds, restore_mask
from recalib.ops.base import Array, Ops


@dataclass(frozen=True)
class Quadratic(ClassCurves):
    """Quadratic scaling, each class against the rest: q_k = σ(G_k(s_k)), s_k the log-odds of p_k.

    p = softmax(z / T), and each row of q is divided by its sum. On a range of log-odds [l, h], G is
    a parabola whose slope goes linearly from m_l > 0 at l to m_h > 0 at h. Outside it continues as
    a line with the slope of that end. So G rises everywhere: no row is reversed, while an
    unrestricted parabola falls on one side. m_l = m_h = 1, G(0) = 0 is temperature scaling. l and h
    are the 5% quantile of s_k of rows with label k and the 95% quantile of the others, so a few
    extreme rows do not determine the curve. For K = 2 both curves are one, and
    P(y = 1) = σ(G_1(s)), s = (z_1 − z_0) / T.

    Each class is fitted by likelihood with the penalty ½ ((m_l − 1)² + (m_h − 1)² + G(0)² / 4),
    which weighs as much as one row and favours temperature scaling. A class without labels keeps
    its probability.

    Predictions may change. Adding a number to a row of logits changes nothing.

    Parameters: `temperature`, a scalar, in units of the logits, for K = 2 `unit_of_log_odds`; each
    (K,): `low`, l, and `width`, h − l, in nats; `low_slope`, m_l, and `high_slope`, m_h; `value`,
    G(l), in nats.

    Source: Berta et al. 2025, structured matrix scaling, for two classes, and the quadratic scaling
    of `probmetrics`, without its penalty, range or restriction on slopes.
    """

    name: ClassVar[str] = "quadratic"
    summary: ClassVar[str] = "a rising parabola for each class's log-odds"
    links: ClassVar[Mapping[str, Link]] = {
        "low": "real",
        "width": "log",
        "low_slope": "log",
        "high_slope": "log",
        "value": "real",
    }

    def transform(self, ops: Ops, logits: Array, parameters: Mapping[str, Array]) -> Array:
        width, low_slope = parameters["width"], parameters["low_slope"]
        rise = class_log_odds(ops, logits / parameters["temperature"]) - parameters["low"]
        below, above = ops.relu(0.0 - rise), ops.relu(rise - width)
        inside = rise + below - above
        slope = low_slope + inside * (parameters["high_slope"] - low_slope) / (width * 2.0)
        lines = parameters["high_slope"] * above - low_slope * below
        log_odds = parameters["value"] + inside * slope + lines
        # log q: its softmax is q divided by its sum.
        return restore_mask(ops, logits, ops.log_sigmoid(log_odds))
