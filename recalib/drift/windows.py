"""How well calibrated a stretch of time was, from its sums alone, and how sure one can be of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.drift.calibration_sums import CalibrationSums
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.intervals import (
    interval_of_mean_gap,
    interval_of_mean_squared_gap,
    variances_under,
)
from recalib.options import check_option

__all__ = ["Coverage", "Weighting", "Window", "label_coverage", "summarise_window"]

Values = NDArray[np.float64]
Weighting = Literal["labelled", "traffic"]

#: How often label rates that do not depend on confidence may look as if they did.
_FALSE_FLAGS = 0.01
#: Labels that a cell of the test must expect, and of which it must expect not to come: below it a
#: χ² is no longer the law of what it is compared with (Cochran 1954).
_EXPECTED = 5.0


@dataclass(frozen=True)
class Coverage:
    """How much of the traffic has labels, and whether that depends on the confidence."""

    #: n/N in all; 1 where traffic was lost, so that there are more labels than predictions known.
    share: float
    #: The probability of label rates as different as these, were there one rate for all bins.
    p_value: float
    #: n/N of each bin (B,), None where there was no traffic.
    by_bin: list[float | None]

    @property
    def selective(self) -> bool:
        """Whether the rates differ by confidence, as they seem to by chance once in a hundred.

        Selection by confidence alone bends neither the test nor a window weighted by traffic; one
        by outcome bends both, and shows here, since outcomes go with confidences. One that does
        not depend on confidence, of outcomes that do not either, is hidden to everybody.
        """
        return self.p_value < _FALSE_FLAGS


@dataclass(frozen=True)
class Window:
    """What the labels of some time say; every number that needs labels is None without any.

    The estimand is that of the population in these bins, with infinitely many labels:
    ECE = Σ w_b|g_b| and CE = √(Σ w_b g_b²), where g_b is accuracy minus mean confidence of bin b
    and w_b its share of the labels, or of the traffic. ECE ≤ CE. Bins with fewer than two labels
    are first put together with a neighbour, which makes either no larger.
    """

    weighting: Weighting
    #: Of the intervals.
    level: float
    #: n, N, and the bins that were compared.
    labelled: int
    traffic: int
    bins: int
    accuracy: float | None
    confidence: float | None
    #: Mean seconds from prediction to label.
    delay: float | None
    #: Σ w|ĝ|, and what a calibrated model would show: Σ w √(2(Σp − Σp²)/(πn²)) on average.
    ece: float | None
    ece_floor: float | None
    #: An interval for ECE, see `interval_of_mean_gap`.
    ece_low: float | None
    ece_high: float | None
    #: ECE ± √(χ²_{level,B} Σ w²v), which holds without any further assumption, and is wide.
    ece_widest_low: float | None
    ece_widest_high: float | None
    #: θ̂ = Σ w((Σr)² − Σr²)/(n(n − 1)), unbiased of CE², where r = y − p; it may be below 0.
    squared_ce: float | None
    #: √(Σ w²(4·max(g² − v, 0)·v + 2v²·n/(n − 1))).
    squared_ce_error: float | None
    #: √max(θ̂, 0), and an interval for CE, see `interval_of_mean_squared_gap`.
    ce: float | None
    ce_low: float | None
    ce_high: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def summarise_window(
    sums: CalibrationSums, *, weighting: Weighting = "labelled", level: float = 0.95
) -> Window:
    """Return what the labels in `sums` say.

    Where a model's labels come for some confidences more often than for others, weight by
    `traffic`: the window is then of all predictions, provided that the labels of each bin are a
    fair sample of it.

    A gap's variance is that of `Gaps.from_sums`: never 0, since a bin of few errors, in which the
    sample's own variance vanishes, falls back on that of a calibrated one and on Agresti and
    Coull's. `python -m benchmarks.monitoring` measures how often the intervals hold the truth.

    Parameters
    ----------
    level: of the intervals, inside (0, 1).

    Raises
    ------
    InputError: a level out of range.
    """
    check_option("level", level, 0 < level < 1, "0 < level < 1")
    n = int(sums.labelled.sum())
    traffic = int(np.maximum(sums.traffic, sums.labelled).sum())
    if n < 2:
        return Window(weighting, level, n, traffic, 0, **_means(sums), **_NOTHING)
    groups = _groups(sums.labelled)

    def grouped(of: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(of, groups)

    p2, py = grouped(sums.confidence_squared), grouped(sums.confidence_correct)
    p, y = grouped(sums.confidence), grouped(sums.correct)
    gaps = Gaps.from_sums(grouped(sums.labelled), p, y, squares=(p2, py))
    residuals = y - 2 * py + p2
    seen = grouped(np.maximum(sums.traffic, sums.labelled))
    weights, rows = (gaps.weights, n) if weighting == "labelled" else (seen / traffic, traffic)
    return Window(
        weighting,
        level,
        n,
        traffic,
        len(groups),
        **_means(sums),
        **_absolute(gaps, weights, rows, level),
        **_squared(gaps, residuals, weights, rows, level),
    )


def label_coverage(sums: CalibrationSums) -> Coverage | None:
    """Return how the traffic in `sums` is labelled; None without traffic.

    Two tests share one error rate: Pearson's χ² of labels and bins, and Cochran and Armitage's of
    a trend over bins, which finds a selection by outcome sooner. Bins that expect fewer than five
    labels, or fewer than five without, are put together with a neighbour. Labels are taken for
    independent of each other: where they come for whole batches at once it flags too often.
    """
    traffic = np.maximum(sums.traffic, sums.labelled)
    total, labelled = int(traffic.sum()), int(sums.labelled.sum())
    if not total:
        return None
    share = labelled / total
    rates = [int(n) / int(of) if of else None for n, of in zip(sums.labelled, traffic, strict=True)]
    least = _EXPECTED / max(min(share, 1 - share), 1e-300)
    groups = _groups(traffic, least)
    n, of = np.add.reduceat(sums.labelled, groups), np.add.reduceat(traffic, groups)
    if len(groups) == 1 or not 0 < share < 1:
        return Coverage(share, 1.0, rates)
    off, variance = n - of * share, share * (1 - share)
    any_way = scipy.special.chdtrc(len(groups) - 1, np.sum(off**2 / of) / variance)
    # Where a bin stands among all predictions: their mean rank.
    rank = (np.cumsum(of) - of / 2) / total
    spread = variance * (of @ (rank - of @ rank / total) ** 2)
    trend = scipy.special.chdtrc(1, (off @ rank) ** 2 / spread)
    return Coverage(share, min(1.0, 2 * float(min(any_way, trend))), rates)


_NOTHING: dict[str, None] = dict.fromkeys(
    (
        "ece",
        "ece_floor",
        "ece_low",
        "ece_high",
        "ece_widest_low",
        "ece_widest_high",
        "squared_ce",
        "squared_ce_error",
        "ce",
        "ce_low",
        "ce_high",
    )
)


def _means(sums: CalibrationSums) -> dict[str, float | None]:
    n = int(sums.labelled.sum())
    totals = {
        "accuracy": sums.correct.sum(),
        "confidence": sums.confidence.sum(),
        "delay": sums.delay.sum(),
    }
    return {name: float(total) / n if n else None for name, total in totals.items()}


def _groups(counts: NDArray[np.int64], least: float = 2) -> NDArray[np.intp]:
    """Return the first bins of runs of neighbours that hold `least` each; one run, if all do not.

    From the left; what is left over at the right end joins the last run.
    """
    starts, held = [0], 0
    for place, count in enumerate(counts.tolist()):
        if held >= least:
            starts.append(place)
            held = 0
        held += count
    if held < least and len(starts) > 1:
        starts.pop()
    return np.array(starts)


def _absolute(gaps: Gaps, weights: Values, rows: int, level: float) -> dict[str, float]:
    ece = float(weights @ np.abs(gaps.gaps))
    noise = np.sqrt(2 / np.pi * gaps.calibrated_variances)
    low, high = interval_of_mean_gap(weights, gaps.gaps, gaps.variances, level, rows=rows)
    quantile = float(scipy.special.chdtri(len(weights), 1 - level))
    off = float(np.sqrt(quantile * (weights**2 @ gaps.variances)))
    return {
        "ece": ece,
        "ece_floor": float(weights @ noise),
        "ece_low": min(low, ece),
        "ece_high": max(high, ece),
        "ece_widest_low": max(ece - off, 0.0),
        "ece_widest_high": min(ece + off, 1.0),
    }


def _squared(
    gaps: Gaps, residuals: Values, weights: Values, rows: int, level: float
) -> dict[str, float]:
    """`residuals` are Σr² (B,)."""
    n, g, v = gaps.counts, gaps.gaps, gaps.variances
    pairs = float(weights @ (((n * g) ** 2 - residuals) / (n * (n - 1))))
    parts = 4 * np.maximum(g**2 - v, 0) * v + 2 * v**2 * n / (n - 1)
    under = variances_under(n, gaps.confidences, g, v)
    low, high = interval_of_mean_squared_gap(weights, g, v, level, rows=rows, under=under)
    ce = float(np.sqrt(max(pairs, 0.0)))
    return {
        "squared_ce": pairs,
        "squared_ce_error": float(np.sqrt(weights**2 @ parts)),
        "ce": ce,
        "ce_low": min(float(np.sqrt(low)), ce),
        "ce_high": max(float(np.sqrt(min(high, 1.0))), ce),
    }
