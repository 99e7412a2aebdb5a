"""Calibration error of a time window, with confidence intervals, from its sums alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Numbers
from recalib.core.options import check_option
from recalib.drift.bin_groups import group_bins
from recalib.drift.calibration_sums import CalibrationSums
from recalib.drift.label_rates import weigh_by_traffic
from recalib.drift.selection import check_selection_ratio, selection_interval
from recalib.drift.silence import SilentClasses, silent_bins, worst_gaps
from recalib.metrics.calibration_gaps import Gaps
from recalib.metrics.intervals import (
    interval_of_mean_gap,
    interval_of_mean_squared_gap,
    variances_under,
)
from recalib.stats.sums import Moments

Weighting = Literal["labelled", "traffic"]


@dataclass(frozen=True)
class Window:
    """Calibration in a window; every number that needs labels is None without labels.

    The estimand is the error of the population in these bins: ECE = Σ w_b|g_b| and
    CE = √(Σ w_b g_b²), where g_b is accuracy minus mean confidence of bin b and w_b its share of
    the labels or of the traffic. ECE ≤ CE. Bins with fewer than 2 labels are first merged with a
    neighbour, which increases neither.

    Weighted by traffic, the intervals are for all traffic: silent traffic (`is_silent`) adds
    nothing to their lower ends, and its largest possible error (`worst_gaps`) to their upper ends.
    All other numbers are of the traffic that is not silent.
    """

    weighting: Weighting
    #: Confidence level of the intervals.
    level: float
    #: The number of labels, the same where each group counts once, N, and the number of bins after
    #: merging.
    labelled: int
    units: float
    traffic: int
    bins: int
    #: The silent share of the traffic; 0 in a window weighted by labels.
    silent: float
    accuracy: float | None = None
    confidence: float | None = None
    #: Mean seconds from prediction to label.
    delay: float | None = None
    #: Σ w|ĝ|, and its mean for a calibrated model: Σ w √(2(Σp − Σp²)/(πn²)).
    ece: float | None = None
    ece_floor: float | None = None
    #: An interval for ECE, see `interval_of_mean_gap`. Of the traffic that is not silent, its upper
    #: end if ECE were at its floor, as for a calibrated model: it falls as 1/√n.
    ece_low: float | None = None
    ece_high: float | None = None
    ece_floor_high: float | None = None
    #: ECE ± √(χ²_{level,B} Σ w²v), wide, but valid without further assumptions.
    ece_widest_low: float | None = None
    ece_widest_high: float | None = None
    #: An interval for ECE if labels are selected by outcome up to a stated ratio, see
    #: `selection_interval`; None without a ratio.
    selection_low: float | None = None
    selection_high: float | None = None
    #: θ̂ = Σ w((Σr)² − Σr²)/(n(n − 1)), unbiased for CE², where r = y − p; may be negative.
    squared_ce: float | None = None
    #: √(Σ w²(4·max(g² − v, 0)·v + 2v²·n/(n − 1))).
    squared_ce_error: float | None = None
    #: √max(θ̂, 0), and an interval for CE, see `interval_of_mean_squared_gap`.
    ce: float | None = None
    ce_low: float | None = None
    ce_high: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


def summarise_window(
    sums: CalibrationSums,
    *,
    weighting: Weighting = "labelled",
    level: float = 0.95,
    silent_traffic: CalibrationSums | None = None,
    silent_classes: SilentClasses | None = None,
    strata: Sequence[CalibrationSums] = (),
    selection_ratio: float = 1.0,
) -> Window:
    """Return the calibration error of `sums`, with intervals.

    If label rates depend on the confidence, use the weighting `traffic`: the window then estimates
    the error of all predictions, provided that the labels of each bin are a random sample of it.

    `Gaps.of_sums` gives the variance of a gap. It is never 0: for a bin with few errors, where the
    sample variance vanishes, it uses that of a calibrated bin and that of Agresti and Coull.
    `python -m benchmarks.monitoring` measures the coverage of the intervals.

    Parameters
    ----------
    level: confidence level of the intervals, inside (0, 1).
    silent_traffic: the sums of further traffic without useful labels, such as that of silent
        segments and times; only for the weighting `traffic`.
    silent_classes: traffic of predicted classes without useful labels. It is among that of the
        bins, which do not distinguish classes: the lower ends decrease by its share, the upper ends
        increase by its largest possible error. Only for the weighting `traffic`.
    strata: the times of the window that have different label rates, by default one; each counts by
        its traffic. Their labels are those of `sums`. Only for the weighting `traffic`.
    selection_ratio: the largest ratio of the labelling rates of right and wrong predictions, and of
        wrong and right ones, in a bin. Above 1 it gives `selection_low` and `selection_high`; only
        for the weighting `traffic`.

    Raises
    ------
    InputError: `level` or `selection_ratio` is out of range.

    Examples
    --------
    >>> from recalib.drift import CalibrationSums, summarise_window
    >>> sums = CalibrationSums.empty([0.8])
    >>> sums.add_labels(np.repeat([0.7, 0.9], 500), np.arange(1000) % 10 < 8)
    >>> window = summarise_window(sums)
    >>> round(window.ece, 2)
    0.1
    """
    check_option("level", level, 0 < level < 1, "0 < level < 1")
    check_selection_ratio(selection_ratio, weighting)
    seen = sums.seen
    silent = np.zeros(sums.bins, bool)
    if weighting == "traffic":
        silent = silent_bins(sums)
    unknown = sums.traffic_only(silent)
    if weighting == "traffic" and silent_traffic is not None:
        unknown = unknown.merge(silent_traffic.traffic_only())
    n, rows = float(sums.weight[~silent].sum()), int(seen[~silent].sum())
    traffic = rows + int(unknown.traffic.sum())
    share = int(unknown.traffic.sum()) / max(traffic, 1)
    class_share, class_error = 0.0, 0.0
    if weighting == "traffic" and silent_classes is not None:
        class_share, class_error = sum(silent_classes.shares.values()), silent_classes.max_error
    silent_share = min(share + class_share, 1.0)
    labels = int(sums.labelled.sum()), sums.size
    if n < 2:
        return Window(weighting, level, *labels, traffic, 0, silent_share, **_means(sums))
    groups = group_bins(sums.weight[~silent])

    def sum_groups(values: NDArray[Any]) -> NDArray[Any]:
        return np.add.reduceat(values[~silent], groups)

    if weighting == "labelled":
        strata = ()
    weighted, squared = (
        Moments(*(sum_groups(values) for values in moments))
        for moments in weigh_by_traffic(strata or [sums])
    )
    gaps = Gaps.from_moments(weighted, squared)
    residuals = squared.residual_squares() / squared.weight
    weights, rows = (
        (gaps.weights, round(n)) if weighting == "labelled" else (sum_groups(seen) / rows, rows)
    )
    fields: dict[str, Any] = {
        **_ece_fields(gaps, weights, rows, level),
        **_ce_fields(gaps, residuals, weights, rows, level),
    }
    if selection_ratio > 1:
        known, total = (
            sum_groups(sums.traffic_confidence_count),
            sum_groups(sums.traffic_confidence),
        )
        confidences = _mean_confidences(gaps, sum_groups(seen), known, total)
        low, high = selection_interval(
            gaps,
            confidences,
            weights,
            sum_groups(sums.labelled) / sum_groups(seen),
            ratio=selection_ratio,
            level=level,
            rows=rows,
        )
        # Labels at random are one of the allowed selections.
        fields["selection_low"] = min(low, fields["ece_low"])
        fields["selection_high"] = max(high, fields["ece_high"])
    shared = unknown.without_traffic(sums.traffic_only(silent))
    _widen(fields, np.where(silent, 0, seen), unknown, shared)
    _widen_for_classes(fields, class_share, class_error)
    fields |= _means(sums)
    return Window(weighting, level, *labels, traffic, len(groups), silent_share, **fields)


def shortfall_of(window: Window) -> Window:
    """Return a window of one bin in which a frequency above the probability is no error.

    The error's interval is about its estimate ± s, and that of a positive deviation g ends where
    a shortfall does: at s − g.
    """
    if window.ece is None or window.ece_high is None:
        return window
    if (window.accuracy or 0.0) < (window.confidence or 0.0):
        return window
    high = max(window.ece_high - 2 * window.ece, 0.0)
    low = None if window.selection_low is None else 0.0
    return replace(window, ece=0.0, ece_low=0.0, ece_high=high, selection_low=low)


def _mean_confidences(gaps: Gaps, traffic: Numbers, known: Numbers, total: Numbers) -> Numbers:
    """Return the mean confidence of all traffic in each bin, (B,).

    Parameters
    ----------
    known, total: the number of predictions with a known confidence, and the sum of these; the
        others have the mean confidence of the labelled predictions.
    """
    shares = np.minimum(known, traffic) / traffic
    return shares * total / np.maximum(known, 1) + (1 - shares) * gaps.confidences


def _widen(
    fields: dict[str, Any], known: Numbers, unknown: CalibrationSums, shared: CalibrationSums
) -> None:
    """Extend the intervals to silent traffic, whose errors may cancel others of the same bin.

    Parameters
    ----------
    known: traffic of each bin that is not silent, (B,).
    unknown, shared: the silent traffic, and that of it which shares bins with other traffic.
    """
    total = float(known.sum() + unknown.traffic.sum())
    share, worst = float(known.sum()) / total, worst_gaps(unknown)
    most, most_squared = (float(unknown.traffic @ worst**power) / total for power in (1, 2))
    least, least_squared = (float(shared.traffic @ worst**power) / total for power in (1, 2))
    for name in _ece_intervals(fields):
        low, high = fields[f"{name}_low"], fields[f"{name}_high"]
        fields[f"{name}_low"] = max(share * low - least, 0.0)
        fields[f"{name}_high"] = min(1.0, max(high, share * high + most))
    low, high = fields["ce_low"], fields["ce_high"]
    # √(Σ N(g + u)²) ≥ √(Σ N g²) − √(Σ N u²), where g and u are what known and shared traffic add.
    fewest = float(np.min(known[known > 0] / (known + shared.traffic)[known > 0]))
    fields["ce_low"] = max(float(np.sqrt(share * fewest)) * low - float(np.sqrt(least_squared)), 0)
    fields["ce_high"] = min(1.0, max(high, float(np.sqrt(share * high**2 + most_squared))))


def _ece_intervals(fields: dict[str, Any]) -> list[str]:
    return [name for name in ("ece", "ece_widest", "selection") if f"{name}_low" in fields]


def _widen_for_classes(fields: dict[str, Any], share: float, error: float) -> None:
    """Extend the intervals to silent classes with this share and largest error of all traffic."""
    for name in _ece_intervals(fields):
        low, high = fields[f"{name}_low"], fields[f"{name}_high"]
        fields[f"{name}_low"] = max(low - share, 0.0)
        fields[f"{name}_high"] = min(high + error, 1.0)
    # A squared gap is at most the gap: both are at most 1.
    fields["ce_low"] = float(np.sqrt(max(fields["ce_low"] ** 2 - share, 0.0)))
    fields["ce_high"] = min(float(np.sqrt(fields["ce_high"] ** 2 + error)), 1.0)


def _means(sums: CalibrationSums) -> dict[str, Any]:
    totals = {
        "accuracy": (sums.correct, sums.weight),
        "confidence": (sums.confidence, sums.weight),
        "delay": (sums.delay, sums.labelled),
    }
    return {
        name: float(total.sum()) / float(n.sum()) if n.any() else None
        for name, (total, n) in totals.items()
    }


def _ece_fields(gaps: Gaps, weights: Numbers, rows: int, level: float) -> dict[str, float]:
    ece = float(weights @ np.abs(gaps.gaps))
    noise = np.sqrt(2 / np.pi * gaps.calibrated_variances)
    low, high = interval_of_mean_gap(weights, gaps.gaps, gaps.variances, level, rows=rows)
    _, floor_high = interval_of_mean_gap(weights, noise, gaps.variances, level, rows=rows)
    quantile = float(scipy.special.chdtri(len(weights), 1 - level))
    off = float(np.sqrt(quantile * (weights**2 @ gaps.variances)))
    return {
        "ece": ece,
        "ece_floor": float(weights @ noise),
        "ece_low": min(low, ece),
        "ece_high": max(high, ece),
        "ece_floor_high": floor_high,
        "ece_widest_low": max(ece - off, 0.0),
        "ece_widest_high": min(ece + off, 1.0),
    }


def _ce_fields(
    gaps: Gaps, residuals: Numbers, weights: Numbers, rows: int, level: float
) -> dict[str, float]:
    """Return the fields of CE; `residuals` are the means of r² (B,)."""
    # The effective size of a bin of two rows is less if their weights differ.
    n, g, v = np.maximum(gaps.counts, 2), gaps.gaps, gaps.variances
    pairs = float(weights @ ((n * g**2 - residuals) / (n - 1)))
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
