"""The promotion rule: from differences of NLL on the same rows to a decision.

The gain of a row is the NLL under the champion minus the NLL under the challenger, each from
parameters that were not fitted to this row. With the mean gain and its standard error, a challenger
becomes the champion by the first of three rules that applies:

1. `gain`: the mean is more than `THRESHOLD` standard errors above 0.
2. `pooled gain`: the mean over the rows of this comparison and of up to four earlier ones against
   the same champion is more than `POOLED_THRESHOLD` standard errors above 0.
3. `more rows`: the challenger is the same map, fitted to at least four times the champion's rows,
   and the mean is more than `THRESHOLD` standard errors above −`MARGIN` times the champion's NLL:
   it is no worse by a relevant amount.

Refits repeat the comparison, and the thresholds allow for it: over 20 refits without any change at
most 5% of champions are replaced by rules 1 and 2, and a gain of four standard errors is proven at
once in 85%, of two within five refits in 83% (decision record 0009). The pooled gain
has the larger threshold because its comparisons have the champion in common: where its fit is worse
than the average fit to as many rows, all of them show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from recalib.core.card import PooledGain

#: A gain is proven above this number of standard errors, and a pooled gain above this number.
THRESHOLD, POOLED_THRESHOLD = 2.96, 3.7
#: The largest number of comparisons that are pooled, the latest included.
MAX_POOLED = 5
#: From this ratio of rows a challenger of the same map only has to be no worse.
MIN_GROWTH = 4.0
#: The largest relevant loss of that challenger, as a share of the champion's NLL.
MARGIN = 0.01

Rule = Literal["gain", "pooled gain", "more rows"]


@dataclass(frozen=True)
class Gain:
    """The mean gain over rows in nats, with its standard error."""

    rows: int
    mean: float
    standard_error: float

    @property
    def standard_errors(self) -> float:
        """The mean in units of its standard error; 0 if all differences are 0."""
        if self.standard_error == 0:
            return 0.0 if self.mean == 0 else math.copysign(math.inf, self.mean)
        return self.mean / self.standard_error

    def __str__(self) -> str:
        side = "lower" if self.mean >= 0 else "higher"
        return f"NLL {side} by {abs(self.mean):.3g} ± {self.standard_error:.2g}"


@dataclass(frozen=True)
class PromotionDecision:
    """Whether the challenger is promoted, by which rule, and why."""

    rule: Rule | None
    #: Of this and earlier comparisons, if there are any.
    pooled: PooledGain | None
    reason: str


def pool(gains: Sequence[Gain]) -> Gain:
    """Return the mean gain over the rows of all comparisons, which share no rows."""
    rows = sum(gain.rows for gain in gains)
    mean = sum(gain.rows * gain.mean for gain in gains) / rows
    error = math.hypot(*(gain.rows * gain.standard_error for gain in gains)) / rows
    return Gain(rows, mean, error)


def decide(
    challenger: str,
    champion: str,
    gain: Gain,
    *,
    champion_nll: float,
    earlier: Sequence[Gain] = (),
    growth: float | None = None,
    sample: str = "held-out folds",
) -> PromotionDecision:
    """Return whether the challenger is promoted.

    Parameters
    ----------
    challenger, champion: names for the reason.
    gain: of the rows of this comparison.
    champion_nll: the champion's mean NLL on these rows.
    earlier: gains of earlier refits with the challenger's map and options against the same
        champion, oldest first, on other rows.
    growth: the challenger's rows divided by the champion's, if both are of the same map and
        options.
    sample: what the rows are, for the reason.
    """
    gains = [*earlier, gain][-MAX_POOLED:]
    pooled = pool(gains)
    is_pooled = len(gains) > 1
    margin = MARGIN * abs(champion_nll)
    if gain.mean > THRESHOLD * gain.standard_error:
        rule: Rule | None = "gain"
    elif is_pooled and pooled.mean > POOLED_THRESHOLD * pooled.standard_error:
        rule = "pooled gain"
    elif (
        growth is not None
        and growth >= MIN_GROWTH
        and gain.mean + margin > THRESHOLD * gain.standard_error
    ):
        rule = "more rows"
    else:
        rule = None
    if rule == "more rows":
        reason = (
            f"{challenger} replaces {champion}: fitted to {growth:.3g} times the rows, and no "
            f"worse by {margin:.2g} ({MARGIN:.0%} of the NLL): {gain} on {sample}"
        )
    else:
        verb = "beats" if rule else "does not beat"
        reason = f"{challenger} {verb} {champion}: {_evidence(gain, THRESHOLD)} on {sample}"
    if not is_pooled:
        return PromotionDecision(rule, None, reason)
    if rule in (None, "pooled gain"):
        reason += f"; over the last {len(gains)} refits {_evidence(pooled, POOLED_THRESHOLD)}"
    card = PooledGain(len(gains), pooled.rows, pooled.mean, pooled.standard_error, POOLED_THRESHOLD)
    return PromotionDecision(rule, card, reason)


def _evidence(gain: Gain, threshold: float) -> str:
    return f"{gain}, {gain.standard_errors:.1f} standard errors (threshold {threshold:.2f})"
