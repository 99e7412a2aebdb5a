"""Coverage and width of the 95% intervals of windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from recalib.drift import CalibrationSums, summarise_window

Values = NDArray[np.float64]

GOAL = 0.93
_UNLUCKY = 1e-3
_RANKS = 150_000
LAWS = {
    "Beta(30, .6)": scipy.stats.beta(30, 0.6),
    "Beta(8, 1)": scipy.stats.beta(8, 1),
    "even from .5 to 1": scipy.stats.uniform(0.5, 0.5),
}
TRUTHS: dict[str, Callable[[Values], Values]] = {
    "calibrated": lambda p: p,
    "slope .7": lambda p: 1 / (1 + ((1 - p) / np.maximum(p, 1e-12)) ** 0.7),
    "local": lambda p: np.where(p > 0.9, p - 0.05, p),
}
_KINDS = ("ece", "ece_widest", "ce")


@dataclass(frozen=True)
class Covered:
    """Intervals of one kind, for one law, truth, number of labels and selection of labels."""

    interval: str
    law: str
    truth: str
    labels: int
    weighting: str
    draws: int
    coverage: float
    width: float

    @property
    def met(self) -> bool:
        """Whether the number of hits is compatible with a coverage of 93%."""
        hits = round(self.coverage * self.draws)
        return bool(scipy.stats.binom.cdf(hits, self.draws, GOAL) >= _UNLUCKY)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {**asdict(self), "met": self.met}


def measure(draws: int) -> Iterator[Covered]:
    """Yield all results; labels are complete, or more frequent for low confidences."""
    for law in LAWS:
        for truth in TRUTHS:
            for labels in (300, 2_000):
                for weighting in ("labelled", "traffic"):
                    yield from _measured(law, truth, labels, weighting, draws)


def _measured(law: str, truth: str, labels: int, weighting: str, draws: int) -> Iterator[Covered]:
    edges = np.arange(1, 15) / 15
    rng = np.random.default_rng(0)
    true = _true(law, truth, edges)
    hits, width = dict.fromkeys(_KINDS, 0), dict.fromkeys(_KINDS, 0.0)
    for _ in range(draws):
        sums = CalibrationSums.empty(edges)
        p = LAWS[law].rvs(labels if weighting == "labelled" else 3 * labels, random_state=rng)
        sums.add_traffic(p)
        if weighting == "traffic":
            p = p[rng.random(len(p)) < 0.9 - 0.7 * p]
        sums.add_labels(p, rng.random(len(p)) < TRUTHS[truth](p))
        summary = summarise_window(sums, weighting=weighting).to_dict()  # type: ignore[arg-type]
        for kind in _KINDS:
            low, high = summary[f"{kind}_low"], summary[f"{kind}_high"]
            hits[kind] += low - 1e-12 <= true[kind] <= high + 1e-12
            width[kind] += (high - low) / draws
    for kind in _KINDS:
        yield Covered(kind, law, truth, labels, weighting, draws, hits[kind] / draws, width[kind])


def _true(law: str, truth: str, edges: Values) -> dict[str, float]:
    """Return the errors of the population in these bins."""
    p = LAWS[law].ppf((np.arange(_RANKS) + 0.5) / _RANKS)
    bins = np.searchsorted(edges, p, side="right")
    counts = np.bincount(bins, minlength=15)
    gaps = np.bincount(bins, TRUTHS[truth](p) - p, 15) / np.maximum(counts, 1)
    shares = counts / _RANKS
    ece = float(shares @ np.abs(gaps))
    return {"ece": ece, "ece_widest": ece, "ce": float(np.sqrt(shares @ gaps**2))}
