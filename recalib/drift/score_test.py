"""Is a candidate better than what serves now? A comparison that may be stopped at any time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.errors import InputError
from recalib.options import check_option

__all__ = ["ScoreTest", "ScoreVerdict"]

Values = NDArray[np.float64]
ScoreVerdict = Literal["better", "no better"]

#: Bets, as shares of the largest that cannot lose all: the best is the mean difference over its
#: variance, and one of these is within a factor of √2 of it wherever that is worth a bet.
_STAKES = 0.9 * 0.5 ** np.arange(6)


@dataclass
class ScoreTest:
    """Two sequential tests of a candidate's scores against the champion's, on the same rows.

    With d = champion's score − candidate's, of which lower scores are better,

        E⁺ = mean over λ of Π (1 + λd)                  against E[d] ≤ 0,
        E⁻ = mean over λ of Π (1 + λ(least_gain − d))   against E[d] ≥ least_gain,

    given the rows before. Each is a nonnegative supermartingale under its hypothesis, so that the
    probability that it ever reaches 1/α is at most α (Ville). The verdict is `better` once E⁺ has,
    and `no better` once E⁻ has, or when `most_labels` have not decided; whichever is first stands.

    The hypotheses are of what each row's score is on average given the rows before it, which labels
    that are selected by outcome bend as they bend every other measure.

    Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
    JRSS B 2024; for scores, Choe and Ramdas, Comparing sequential forecasters, 2023.

    Parameters
    ----------
    alpha: of each test.
    bound: of scores, which are in [0, bound]: 2 for the Brier score over classes, 1 for that of
        confidence against correctness.
    least_gain: the mean difference that is worth a change.
    most_labels: after so many without a verdict the candidate is no better.
    """

    alpha: float = 0.05
    bound: float = 2.0
    least_gain: float = 0.001
    most_labels: int = 20_000

    def __post_init__(self) -> None:
        check_option("alpha", self.alpha, 0 < self.alpha < 1, "0 < alpha < 1")
        check_option("bound", self.bound, self.bound > 0, "more than 0")
        inside = 0 < self.least_gain < self.bound
        check_option("least_gain", self.least_gain, inside, "more than 0, less than bound")
        check_option("most_labels", self.most_labels, self.most_labels >= 1, "at least 1")
        self.labels = 0
        #: Σd and Σd², from which the mean difference and its standard error are told.
        self._sum, self._squares = 0.0, 0.0
        self._for = np.zeros(len(_STAKES))
        self._against = np.zeros(len(_STAKES))
        self.verdict: ScoreVerdict | None = None
        #: The label at which the verdict fell.
        self.decided_at: int | None = None

    @property
    def threshold(self) -> float:
        """What the logarithm of either evidence must reach, log 1/α."""
        return -math.log(self.alpha)

    @property
    def log_evidence(self) -> float:
        """log E⁺ now: that the candidate is better."""
        return _mixed(self._for)

    @property
    def log_evidence_against(self) -> float:
        """log E⁻ now: that it is not better by `least_gain`."""
        return _mixed(self._against)

    @property
    def mean_difference(self) -> float | None:
        """Mean of d, positive where the candidate is better; None before any label."""
        return self._sum / self.labels if self.labels else None

    @property
    def standard_error(self) -> float | None:
        """Of the mean difference; None before the second label."""
        if self.labels < 2:
            return None
        mean = self._sum / self.labels
        variance = max(self._squares / self.labels - mean**2, 0.0)
        return math.sqrt(variance / (self.labels - 1))

    def update(self, champion: ArrayLike, candidate: ArrayLike) -> None:
        """Take the scores of both on the same rows, in the order of their predictions.

        Rows after the verdict are taken, and change it no more.

        Parameters
        ----------
        champion, candidate: (N,), in [0, bound], the lower the better.

        Raises
        ------
        InputError: shapes that differ, or scores out of range. Nothing is taken then.
        """
        before, after = self._checked("champion", champion), self._checked("candidate", candidate)
        if before.shape != after.shape:
            accepted = f"{before.shape}, one for each of the champion's"
            raise InputError("candidate", found=f"shape {after.shape}", accepted=accepted)
        d = before - after
        if not len(d):
            return
        paths = []
        for start, gains, largest in (
            (self._for, d, self.bound),
            (self._against, self.least_gain - d, self.bound + self.least_gain),
        ):
            stakes = _STAKES / largest
            paths.append(start[:, None] + np.cumsum(np.log1p(stakes[:, None] * gains), axis=1))
        self._decide(paths)
        self._for, self._against = paths[0][:, -1], paths[1][:, -1]
        self.labels += len(d)
        self._sum += float(d.sum())
        self._squares += float(d @ d)

    def summary(self) -> dict[str, Any]:
        """Return what there is to tell of it, as JSON."""
        return {
            "labels": self.labels,
            "mean_difference": self.mean_difference,
            "standard_error": self.standard_error,
            "log_evidence": self.log_evidence,
            "log_evidence_against": self.log_evidence_against,
            "threshold": self.threshold,
        }

    def state(self) -> dict[str, Any]:
        """Return all that has been learnt, as JSON, options apart."""
        return {
            "labels": self.labels,
            "sum": self._sum,
            "squares": self._squares,
            "for": self._for.tolist(),
            "against": self._against.tolist(),
            "verdict": self.verdict,
            "decided_at": self.decided_at,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned, with the same options."""
        self.labels = int(state["labels"])
        self._sum, self._squares = float(state["sum"]), float(state["squares"])
        self._for, self._against = np.array(state["for"]), np.array(state["against"])
        self.verdict, self.decided_at = state["verdict"], state["decided_at"]

    def _decide(self, paths: list[Values]) -> None:
        if self.verdict is not None:
            return
        found: list[tuple[int, ScoreVerdict]] = []
        verdicts: tuple[ScoreVerdict, ScoreVerdict] = ("better", "no better")
        for path, verdict in zip(paths, verdicts, strict=True):
            evidence = np.logaddexp.reduce(path, axis=0) - math.log(len(_STAKES))
            reached = np.flatnonzero(evidence >= self.threshold)
            if len(reached):
                found.append((self.labels + int(reached[0]) + 1, verdict))
        if self.labels + paths[0].shape[1] >= self.most_labels:
            found.append((self.most_labels, "no better"))
        if found:
            # Of both at one label, which needs a least gain within the noise of it: the better.
            self.decided_at, self.verdict = min(found)

    def _checked(self, name: str, scores: ArrayLike) -> Values:
        values = np.asarray(scores, np.float64)
        if values.ndim != 1 or not np.all((values >= 0) & (values <= self.bound)):
            raise InputError(
                name,
                found=f"shape {values.shape}, or a score out of range",
                accepted=f"(N,) in [0, {self.bound:g}]",
            )
        return values


def _mixed(logs: Values) -> float:
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))
