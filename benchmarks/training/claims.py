"""Orderings that the papers report on CIFAR-10, and whether these runs show them.

Each is between two cells of a table for ResNet-50 (001, 002, 004) or WRN-28-10 (000). Papers
contradict each other: MMCE (000 and 001 against 004), Brier (000 against 004) and FLSD-53 (002
against 004). Both sides are listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from benchmarks.training.objectives import OBJECTIVES


@dataclass(frozen=True)
class Side:
    """A number of a run: of an objective, after a map, on test rows or at a severity of shift."""

    objective: str
    map: str = ""
    severity: int = 0

    def of(self, story: Mapping[str, Any], metric: str) -> float:
        """Return the number in a run's story."""
        return float(self._results(story)[metric])

    def measures(self, story: Mapping[str, Any], metric: str) -> bool:
        """Return whether a run's story has the number: earlier runs have fewer."""
        return metric in self._results(story)

    def _results(self, story: Mapping[str, Any]) -> Mapping[str, Any]:
        measured = story["measured"].get(self.map, {})
        results: Mapping[str, Any] = measured.get("test", {})
        if self.severity:
            results = measured["shifted"][self.severity - 1] if measured.get("shifted") else {}
        return results


@dataclass(frozen=True)
class Claim:
    """That `low` is lower than `high` in a metric."""

    paper: str
    text: str
    low: Side
    high: Side
    metric: str = "ece"


@dataclass(frozen=True)
class Verdict:
    """The number of common seeds, the difference of `high` and `low`, p, and the conclusion."""

    seeds: int
    difference: str
    p: str
    here: str


def _below(paper: str, low: Side, high: Side, metric: str = "ece") -> Claim:
    first, second = (
        side.objective + (f" after {side.map}" if side.map else "") for side in (low, high)
    )
    at = f" at severity {high.severity}" if high.severity else ""
    return Claim(paper, f"{first} below {second}{at}, {TITLES[metric]}", low, high, metric)


def _lower(paper: str, *pairs: tuple[str, str], metric: str = "ece") -> list[Claim]:
    """Return the claims that the first objective of each pair is below the second."""
    return [_below(paper, Side(low), Side(high), metric) for low, high in pairs]


TITLES = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "ece_l2_equal_mass": "ℓ2 ECE",
    "ece_equal_mass": "AdaECE",
    "classwise_ece": "cwECE",
    "ks_error": "KS",
    "ece_sweep": "sweep",
    "marginal_ece_l2": "marginal",
    "mce": "MCE",
    "s99": "S99",
    "nll": "NLL",
}
_L2 = "ece_l2_equal_mass"
#: Accuracy above that of chance from which a network has learnt.
_LEARNT = 0.1
#: A difference is seen if a two-sided paired t-test over the seeds has a p below this.
_LEVEL = 0.05
_OF_TABLES_4_AND_6 = (
    ("CE + MMCE", "CE"), ("focal + SB-ECE", "focal 3"), ("focal + S-AvUC", "focal 3")
)  # fmt: skip
_OF_THE_TEXT: tuple[Claim, ...] = (
    *_lower(
        "004, table 1", ("FLSD-53", "CE"), ("FLSD-53", "Brier"), ("FLSD-53", "CE + MMCE"),
        ("FLSD-53", "label smoothing"), ("Brier", "CE"), ("label smoothing", "CE"),
        ("CE", "CE + MMCE"),
    ),
    *_lower("004, table 5", ("focal 3", "focal 5, 3, 2")),
    _below("004, table 1", Side("CE", "TS"), Side("CE")),
    _below("004, table 1", Side("FLSD-53", "TS"), Side("CE", "TS")),
    *_lower(
        "000, table 2", ("CE + MMCE", "CE"), ("focal 3", "CE"), ("CE", "Brier"),
        ("focal + SB-ECE", "focal 3"), ("focal + S-AvUC", "focal 3"), ("CE", "CE + SB-ECE"),
        ("CE", "CE + S-AvUC"), ("CE + AvUC-GS", "CE + AvUC"), metric=_L2,
    ),
    *_lower(
        "000, appendix B", ("CE + SB-ECE, interleaved", "CE"), ("CE + S-AvUC, interleaved", "CE"),
        metric=_L2,
    ),
    _below("000, table 2", Side("CE", "TS-SB-ECE"), Side("CE", "TS"), _L2),
    _below("000, figure 2", Side("CE", "TS-SB-ECE", 5), Side("CE", "TS", 5), _L2),
    _below("000, figure 7", Side("focal 3", "", 5), Side("CE", "TS", 5), _L2),
    _below("000, figure 7", Side("CE + MMCE", "", 5), Side("CE", "TS", 5), _L2),
    *_lower(
        "001, table 3", ("CE + ACLS", "CE"), ("CE + ACLS", "CE + MbLS"),
        ("CE + MbLS", "label smoothing"), ("CE + MMCE", "CE"), ("CE + ECP", "CE"),
        ("CE + CRL", "CE"), ("CE + CPC", "CE"), ("CE", "CE + MDCA"),
    ),
    *_lower(
        "002, table 1", ("selective risk", "CE"), ("selective risk", "AURC"),
        ("selective risk", "CE + KDE"), ("CE", "FLSD-53"), ("CE", "inverse focal"),
    ),
    *_lower("002, table 2", ("selective risk", "CE"), metric="classwise_ece"),
    *(
        claim
        for pair in _OF_TABLES_4_AND_6
        for metric in ("ks_error", "ece_sweep")
        for claim in _lower("000, table 4", pair, metric=metric)
    ),
    *_lower("000, table 4", ("CE", "focal 3"), metric="ks_error"),
    *_lower("000, table 6", *_OF_TABLES_4_AND_6, ("CE", "focal 3"), metric="marginal_ece_l2"),
    *_lower(
        "004, table 11", ("FLSD-53", "CE"), ("Brier", "CE"), ("CE", "CE + MMCE"), metric="mce"
    ),
    *_lower("004, table 13", ("FLSD-53", "CE"), ("FLSD-53", "CE + MMCE"), metric="s99"),
)  # fmt: skip


def _as_released(claim: Claim) -> Claim:
    """Return the claim between the losses as the authors' code has them, where these are named."""
    is_summed = claim.paper.startswith("004")
    suffixes = (", summed", ", released, summed") if is_summed else (", released",)

    def named(side: Side) -> str | None:
        names = (side.objective + suffix for suffix in suffixes)
        return next((name for name in names if name in OBJECTIVES), None)

    low, high = named(claim.low), named(claim.high)
    if is_summed and None in (low, high):
        return claim  # one side alone would compare two loops
    return _below(
        claim.paper,
        replace(claim.low, objective=low or claim.low.objective),
        replace(claim.high, objective=high or claim.high.objective),
        claim.metric,
    )


CLAIMS = tuple(dict.fromkeys((*_OF_THE_TEXT, *map(_as_released, _OF_THE_TEXT))))


def has_learnt(story: Mapping[str, Any]) -> bool:
    """Whether a run is 10 points better than chance; the calibration of others says nothing."""
    # Runs of earlier versions, all of them on CIFAR-10, do not have their number of classes.
    chance = 1 / story.get("classes", 10)
    return bool(story["measured"][""]["test"]["accuracy"] > chance + _LEARNT)


def verdict(claim: Claim, stories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Verdict:
    """Return what runs by objective say of a claim, by a t-test of the differences of equal seeds.

    Runs that have not learnt are left out. One seed has no test. No correction is made for the
    number of claims.
    """
    lows = {story["seed"]: story for story in stories.get(claim.low.objective, ())}
    highs = {story["seed"]: story for story in stories.get(claim.high.objective, ())}
    seeds = sorted(lows.keys() & highs.keys())
    if not seeds:
        return Verdict(0, "", "", "not run")
    sides = [(claim.low, lows), (claim.high, highs)]
    if not all(side.measures(runs[seed], claim.metric) for side, runs in sides for seed in seeds):
        return Verdict(0, "", "", "not measured")
    seeds = [seed for seed in seeds if has_learnt(lows[seed]) and has_learnt(highs[seed])]
    if not seeds:
        return Verdict(0, "", "", "a side has not learnt")
    gaps = np.array([
        claim.high.of(highs[seed], claim.metric) - claim.low.of(lows[seed], claim.metric)
        for seed in seeds
    ])  # fmt: skip
    mean = float(gaps.mean())
    difference = f"{mean * 100:+.1f}"
    if len(seeds) == 1:
        return Verdict(1, difference, "", "one seed: no test")
    difference += f" ± {_standard_error(gaps) * 100:.1f}"
    p = _p_value(gaps)
    outcome = "seen" if mean > 0 else "the opposite is seen"
    here = outcome if p < _LEVEL else "no difference seen"
    return Verdict(len(seeds), difference, f"{p:.3f}", here)


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _p_value(gaps: NDArray[np.float64]) -> float:
    """Return the two-sided p of a mean of 0, by Student's t with n − 1 degrees of freedom."""
    error = _standard_error(gaps)
    if error == 0:
        return 1.0 if gaps.mean() == 0 else 0.0
    return float(2 * scipy.stats.t.sf(abs(float(gaps.mean())) / error, len(gaps) - 1))


def within_subject_error(values: NDArray[np.float64]) -> float:
    """Return the standard error of the mean of each condition over the same subjects.

    √(MS / S), where MS is the mean square of the interaction of subjects and conditions: what is
    common to a subject, such as a corruption that is hard for every method, does not count.

    Parameters
    ----------
    values: (S, C) of S ≥ 2 subjects and C ≥ 2 conditions.

    Source: Masson and Loftus 2003, Using confidence intervals for graphically based data
    interpretation; paper 000, figures 2 and 9.
    """
    centred = values - values.mean(axis=1, keepdims=True)
    residuals = centred - centred.mean(axis=0)
    subjects, conditions = values.shape
    mean_square = float((residuals**2).sum()) / ((subjects - 1) * (conditions - 1))
    return math.sqrt(mean_square / subjects)


def cohens_d(before: Sequence[float], after: Sequence[float]) -> float:
    """Return by how many standard deviations a mean falls: positive if `after` is lower.

    d = (mean(before) − mean(after)) / s, where s² is the pooled variance of the runs. Each side has
    at least two runs. Without any variance d is infinite, or 0 for equal means.

    Source: Cohen 1988; paper 000, figure 1, which does not say how it pools.
    """
    sides = [np.asarray(side, float) for side in (before, after)]
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in sides)
    pooled = math.sqrt(squares / (len(before) + len(after) - 2))
    gap = float(sides[0].mean() - sides[1].mean())
    if pooled == 0:
        return math.copysign(math.inf, gap) if gap else 0.0
    return gap / pooled
