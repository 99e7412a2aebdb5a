"""The promotion rule: from differences of NLL on the same rows to a decision.

The gain of a row is the NLL under the champion minus the NLL under the challenger, each from
parameters that were not fitted to this row. With the mean gain and its standard error, a challenger
becomes the champion by the first of three rules that applies:

1. `gain`: the mean is more than `THRESHOLD` standard errors above 0.
2. `pooled gain`: the same for the rows of this comparison and of up to four earlier ones against
   the same champion, m in total, with the threshold times √((m + 3)/4).
3. `more rows`: the challenger is the same map, fitted to at least four times the champion's rows,
   and the mean is more than `THRESHOLD` standard errors above −`MARGIN` times the champion's NLL:
   it is no worse by a relevant amount.

Refits repeat the comparison, and the threshold allows for it: over 20 refits without any change at
most 5% of champions are replaced by rules 1 and 2 (`python -m benchmarks.promotion`). The factor of
rule 2 is for the error of the champion's own fit. Let m challengers and the champion be fitted to N
rows each, with many parameters: then the variance of a mean gain is three quarters noise of its
own rows and a quarter the champion's deviation from the average fit, which all m comparisons
share. So the pooled mean in standard errors has the variance 3/4 + m/4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "MARGIN",
    "MAX_POOLED",
    "MIN_GROWTH",
    "THRESHOLD",
    "Decision",
    "Gain",
    "decide",
    "pool",
    "pooled_threshold",
]

#: A gain of this number of standard errors is proven.
THRESHOLD = 2.95
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
class Decision:
    """Whether the challenger is promoted, by which rule, and why."""

    rule: Rule | None
    #: The pooled gain of two or more comparisons.
    pooled: Gain | None
    #: The number of comparisons in it.
    refits: int
    reason: str


def pool(gains: Sequence[Gain]) -> Gain:
    """Return the mean gain over the rows of all comparisons, which share no rows."""
    rows = sum(gain.rows for gain in gains)
    mean = sum(gain.rows * gain.mean for gain in gains) / rows
    error = math.hypot(*(gain.rows * gain.standard_error for gain in gains)) / rows
    return Gain(rows, mean, error)


def pooled_threshold(refits: int) -> float:
    """Return the threshold of the pooled gain of `refits` comparisons, in standard errors."""
    return THRESHOLD * math.sqrt((refits + 3) / 4)


def decide(
    challenger: str,
    champion: str,
    gain: Gain,
    *,
    champion_nll: float,
    earlier: Sequence[Gain] = (),
    growth: float | None = None,
) -> Decision:
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
    """
    gains = [*earlier, gain][-MAX_POOLED:]
    refits = len(gains)
    pooled = pool(gains) if refits > 1 else None
    margin = MARGIN * abs(champion_nll)
    if gain.mean > THRESHOLD * gain.standard_error:
        rule: Rule | None = "gain"
    elif pooled and pooled.mean > pooled_threshold(refits) * pooled.standard_error:
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
            f"worse by {margin:.2g} ({MARGIN:.0%} of the NLL): {gain} on held-out folds"
        )
    else:
        verb = "beats" if rule else "does not beat"
        reason = f"{challenger} {verb} {champion}: {_evidence(gain, THRESHOLD)} on held-out folds"
    if pooled and rule in (None, "pooled gain"):
        evidence = _evidence(pooled, pooled_threshold(refits))
        reason += f"; over the last {refits} refits {evidence}"
    return Decision(rule, pooled, refits, reason)


def _evidence(gain: Gain, threshold: float) -> str:
    return f"{gain}, {gain.standard_errors:.1f} standard errors (threshold {threshold:.2f})"
