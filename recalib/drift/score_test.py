"""A sequential comparison of a candidate with the champion, valid at any stopping time."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from recalib.core.arrays import Numbers
from recalib.core.field_types import Count, Fraction, Positive, check_fields
from recalib.core.options import check_option
from recalib.drift.validation import check_array
from recalib.errors import InputError

ScoreVerdict = Literal["better", "no better"]

#: Bets λ, as shares of the largest bet that cannot lose everything. The best bet is the mean
#: difference over its variance; on this grid a bet is within a factor √2 of it.
_STAKES = 0.9 * 0.5 ** np.arange(6)


@dataclass(eq=False)
class ScoreTest:
    """Two sequential tests of a candidate's scores against the champion's, on the same rows.

    With d = champion's score − candidate's score (lower scores are better),

        E⁺ = mean over λ of Π (1 + λd)                  against E[d] ≤ 0,
        E⁻ = mean over λ of Π (1 + λ(min_gain − d))   against E[d] ≥ min_gain,

    given the rows before. Each is a nonnegative supermartingale under its hypothesis, so it ever
    reaches 1/α with probability at most α (Ville). The verdict is `better` when E⁺ reaches 1/α, and
    `no better` when E⁻ does or after `max_labels`; the first verdict is final. It depends on the
    order of the rows, so states of two parts of a stream cannot be merged.

    Labels whose arrival depends on the outcome bias this test as they bias every other measure.

    Source: Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
    JRSS B 2024; for scores, Choe and Ramdas, Comparing sequential forecasters, 2023.

    Parameters
    ----------
    alpha: the error rate of each test.
    bound: scores are in [0, bound]: 2 for the Brier score over classes, 1 for the Brier score of
        confidence and correctness.
    min_gain: the smallest mean difference that is worth a change.
    max_labels: the verdict is `no better` after this number of labels without another.

    Examples
    --------
    >>> from recalib.drift import ScoreTest
    >>> test = ScoreTest()
    >>> test.update(champion=np.full(300, 0.5), candidate=np.full(300, 0.2))
    >>> test.verdict
    'better'
    """

    alpha: Fraction = 0.05
    bound: Positive = 2.0
    min_gain: Positive = 0.001
    max_labels: Count = 20_000

    def __post_init__(self) -> None:
        check_fields(self)
        check_option("min_gain", self.min_gain, self.min_gain < self.bound, "less than bound")
        self.labels = 0
        #: Σd and Σd², for the mean difference and its standard error.
        self._sum, self._squares = 0.0, 0.0
        self._for = np.zeros(len(_STAKES))
        self._against = np.zeros(len(_STAKES))
        self.verdict: ScoreVerdict | None = None
        #: The number of labels at the verdict.
        self.decided_at: int | None = None

    @property
    def threshold(self) -> float:
        """The log evidence at which either test decides, log 1/α."""
        return -math.log(self.alpha)

    @property
    def log_evidence(self) -> float:
        """The current log E⁺, the evidence that the candidate is better."""
        return _log_mean(self._for)

    @property
    def log_evidence_against(self) -> float:
        """The current log E⁻, the evidence that it is not better by `min_gain`."""
        return _log_mean(self._against)

    @property
    def mean_difference(self) -> float | None:
        """Mean of d, positive if the candidate is better; None without labels."""
        return self._sum / self.labels if self.labels else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean difference; None with fewer than 2 labels."""
        if self.labels < 2:
            return None
        mean = self._sum / self.labels
        variance = max(self._squares / self.labels - mean**2, 0.0)
        return math.sqrt(variance / (self.labels - 1))

    def update(self, champion: ArrayLike, candidate: ArrayLike) -> None:
        """Process the scores of both on the same rows, in the order of their predictions.

        Rows after the verdict are counted; they do not change it.

        Parameters
        ----------
        champion, candidate: (N,), in [0, bound]; lower is better.

        Raises
        ------
        InputError: shapes differ, or a score is out of range; nothing is processed.
        """
        before, after = self._check("champion", champion), self._check("candidate", candidate)
        if before.shape != after.shape:
            accepted = f"{before.shape}, as the champion's"
            raise InputError("candidate", found=f"shape {after.shape}", accepted=accepted)
        d = before - after
        if not len(d):
            return
        paths = []
        for start, gains, largest in (
            (self._for, d, self.bound),
            (self._against, self.min_gain - d, self.bound + self.min_gain),
        ):
            stakes = _STAKES / largest
            paths.append(start[:, None] + np.cumsum(np.log1p(stakes[:, None] * gains), axis=1))
        self._decide(paths)
        self._for, self._against = paths[0][:, -1], paths[1][:, -1]
        self.labels += len(d)
        self._sum += float(d.sum())
        self._squares += float(d @ d)

    def summary(self) -> dict[str, Any]:
        """Return the results as JSON."""
        return {
            "labels": self.labels,
            "mean_difference": self.mean_difference,
            "standard_error": self.standard_error,
            "log_evidence": self.log_evidence,
            "log_evidence_against": self.log_evidence_against,
            "threshold": self.threshold,
        }

    def __eq__(self, other: object) -> bool:
        """Return whether options and state are equal."""
        if not isinstance(other, ScoreTest):
            return NotImplemented
        options, others = (
            [getattr(test, field.name) for field in fields(test)] for test in (self, other)
        )
        return options == others and self.state() == other.state()

    __hash__ = None  # type: ignore[assignment]

    def state(self) -> dict[str, Any]:
        """Return the state as JSON, without the options."""
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
        """Restore what `state` returned; the options must be the same."""
        self.labels = int(state["labels"])
        self._sum, self._squares = float(state["sum"]), float(state["squares"])
        self._for, self._against = np.array(state["for"]), np.array(state["against"])
        self.verdict, self.decided_at = state["verdict"], state["decided_at"]

    def _decide(self, paths: list[Numbers]) -> None:
        if self.verdict is not None:
            return
        decisions: list[tuple[int, ScoreVerdict]] = []
        verdicts: tuple[ScoreVerdict, ScoreVerdict] = ("better", "no better")
        for path, verdict in zip(paths, verdicts, strict=True):
            evidence = np.logaddexp.reduce(path, axis=0) - math.log(len(_STAKES))
            reached = np.flatnonzero(evidence >= self.threshold)
            if len(reached):
                decisions.append((self.labels + int(reached[0]) + 1, verdict))
        if self.labels + paths[0].shape[1] >= self.max_labels:
            decisions.append((self.max_labels, "no better"))
        if decisions:
            # If both decide at one label, "better" wins. That takes a `min_gain` within the noise.
            self.decided_at, self.verdict = min(decisions)

    def _check(self, name: str, scores: ArrayLike) -> Numbers:
        values = np.asarray(scores, np.float64)
        legal = values.ndim == 1 and np.all((values >= 0) & (values <= self.bound))
        accepted = f"(N,) in [0, {self.bound:g}]"
        check_array(name, values, legal, "a score out of range", accepted)
        return values


def _log_mean(logs: Numbers) -> float:
    return float(np.logaddexp.reduce(logs)) - math.log(len(logs))
