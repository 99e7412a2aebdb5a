"""Orderings that the papers report on CIFAR-10, and whether these runs show them.

Each is between two cells of a table for ResNet-50 (001, 002, 004) or WRN-28-10 (000). Papers
contradict each other: MMCE (000 and 001 against 004), Brier (000 against 004) and FLSD-53 (002
against 004). Both sides are listed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CLAIMS", "Claim", "Side", "Verdict", "has_learnt", "verdict"]


@dataclass(frozen=True)
class Side:
    """A number of a run: of an objective, after a map, on test rows or at a severity of shift."""

    objective: str
    map: str = ""
    severity: int = 0

    def of(self, story: Mapping[str, Any], metric: str) -> float:
        """Return the number in a run's story."""
        measured = story["measured"][self.map]
        results = measured["shifted"][self.severity - 1] if self.severity else measured["test"]
        return float(results[metric])


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
    """The number of common seeds, the difference of `high` and `low`, and the conclusion."""

    seeds: int
    difference: str
    here: str


def _lower(paper: str, low: str, high: str, metric: str = "ece") -> Claim:
    title = {"ece": "ECE", "ece_l2_equal_mass": "ℓ2 ECE", "classwise_ece": "cwECE"}[metric]
    return Claim(paper, f"{low} below {high}, {title}", Side(low), Side(high), metric)


_L2 = "ece_l2_equal_mass"
_CLASSES = 10
#: How far apart two seeds of one objective may lie here: less between two runs says nothing.
_MIN_DIFFERENCE = 0.03
CLAIMS: tuple[Claim, ...] = (
    _lower("004, table 1", "FLSD-53", "CE"),
    _lower("004, table 1", "FLSD-53", "Brier"),
    _lower("004, table 1", "FLSD-53", "CE + MMCE"),
    _lower("004, table 1", "FLSD-53", "label smoothing"),
    _lower("004, table 1", "Brier", "CE"),
    _lower("004, table 1", "label smoothing", "CE"),
    _lower("004, table 1", "CE", "CE + MMCE"),
    _lower("004, table 5", "focal 3", "focal 5, 3, 2"),
    Claim("004, table 1", "CE after TS below CE, ECE", Side("CE", "TS"), Side("CE")),
    Claim(
        "004, table 1",
        "FLSD-53 after TS below CE after TS, ECE",
        Side("FLSD-53", "TS"), Side("CE", "TS"),
    ),
    _lower("000, table 2", "CE + MMCE", "CE", _L2),
    _lower("000, table 2", "focal 3", "CE", _L2),
    _lower("000, table 2", "CE", "Brier", _L2),
    _lower("000, table 2", "focal + SB-ECE", "focal 3", _L2),
    _lower("000, table 2", "focal + S-AvUC", "focal 3", _L2),
    _lower("000, table 2", "CE", "CE + SB-ECE", _L2),
    _lower("000, table 2", "CE", "CE + S-AvUC", _L2),
    _lower("000, table 2", "CE + AvUC-GS", "CE + AvUC", _L2),
    _lower("000, appendix B", "CE + SB-ECE, interleaved", "CE", _L2),
    _lower("000, appendix B", "CE + S-AvUC, interleaved", "CE", _L2),
    Claim(
        "000, table 2",
        "CE after TS-SB-ECE below CE after TS, ℓ2 ECE",
        Side("CE", "TS-SB-ECE"), Side("CE", "TS"), _L2,
    ),
    Claim(
        "000, figure 2",
        "CE after TS-SB-ECE below CE after TS at severity 5, ℓ2 ECE",
        Side("CE", "TS-SB-ECE", 5), Side("CE", "TS", 5), _L2,
    ),
    Claim(
        "000, figure 7",
        "focal 3 below CE after TS at severity 5, ℓ2 ECE",
        Side("focal 3", "", 5), Side("CE", "TS", 5), _L2,
    ),
    Claim(
        "000, figure 7",
        "CE + MMCE below CE after TS at severity 5, ℓ2 ECE",
        Side("CE + MMCE", "", 5), Side("CE", "TS", 5), _L2,
    ),
    _lower("001, table 3", "CE + ACLS", "CE"),
    _lower("001, table 3", "CE + ACLS", "CE + MbLS"),
    _lower("001, table 3", "CE + MbLS", "label smoothing"),
    _lower("001, table 3", "CE + MMCE", "CE"),
    _lower("001, table 3", "CE + ECP", "CE"),
    _lower("001, table 3", "CE + CRL", "CE"),
    _lower("001, table 3", "CE + CPC", "CE"),
    _lower("001, table 3", "CE", "CE + MDCA"),
    _lower("002, table 1", "selective risk", "CE"),
    _lower("002, table 1", "selective risk", "AURC"),
    _lower("002, table 1", "selective risk", "CE + KDE"),
    _lower("002, table 1", "CE", "FLSD-53"),
    _lower("002, table 1", "CE", "inverse focal"),
    _lower("002, table 2", "selective risk", "CE", "classwise_ece"),
)  # fmt: skip


def has_learnt(story: Mapping[str, Any]) -> bool:
    """Whether a run is right twice as often as chance; the calibration of others says nothing."""
    return bool(story["measured"][""]["test"]["accuracy"] > 2 / _CLASSES)


def verdict(claim: Claim, stories: Mapping[str, Sequence[Mapping[str, Any]]]) -> Verdict:
    """Return what runs by objective say of a claim; runs of one seed are compared.

    Runs that have not learnt are left out.
    """
    lows = {story["seed"]: story for story in stories.get(claim.low.objective, ())}
    highs = {story["seed"]: story for story in stories.get(claim.high.objective, ())}
    seeds = sorted(lows.keys() & highs.keys())
    if not seeds:
        return Verdict(0, "", "not run")
    seeds = [seed for seed in seeds if has_learnt(lows[seed]) and has_learnt(highs[seed])]
    if not seeds:
        return Verdict(0, "", "a side has not learnt")
    gaps = np.array([
        claim.high.of(highs[seed], claim.metric) - claim.low.of(lows[seed], claim.metric)
        for seed in seeds
    ])  # fmt: skip
    points, mean = gaps * 100, float(gaps.mean())
    difference = f"{points.mean():+.1f}"
    clear = abs(mean) > _MIN_DIFFERENCE
    if len(seeds) > 1:
        error = float(gaps.std(ddof=1)) / math.sqrt(len(seeds))
        difference += f" ± {error * 100:.1f}"
        clear = bool((np.sign(gaps) == np.sign(mean)).all()) and abs(mean) > 2 * error
    if not clear:
        return Verdict(len(seeds), difference, "no difference seen")
    outcome = "seen" if mean > 0 else "the opposite is seen"
    return Verdict(len(seeds), difference, outcome if len(seeds) > 1 else f"{outcome}, by one seed")
