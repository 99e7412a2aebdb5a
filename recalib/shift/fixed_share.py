"""Fixed share: the weight of a changed answer against the unchanged one, learnt from labels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

#: The probability that the better answer changes from one labelled row to the next: with 1e-4,
#: a weight stays above 1e-4 and recovers within about 9 nats.
SHARE_RATE = 1e-4


@dataclass(frozen=True)
class FixedShare:
    """The weights of two answers to each row under log loss; they start equal.

    The mean of both answers, by these weights, loses on T labelled rows at most
    ln 2 + S ln(1/r) − (T − S) ln(1 − r) nats more than the best sequence of the two that changes S
    times, with the rate r. It holds if each label is known before the next answer.

    Source: Herbster and Warmuth, Tracking the best expert, Machine Learning 1998, section 5.
    """

    #: The weight of the changed answer, in [0, 1].
    weight: float = 0.5
    #: Labelled rows, and by how many nats the changed answer was better on them in total.
    labels: int = 0
    evidence: float = 0.0

    @property
    def applied(self) -> float:
        """The weight in answers: 0 before the first label, since nothing confirms the change."""
        return self.weight if self.labels else 0.0

    def add(self, differences: Iterable[float], rate: float = SHARE_RATE) -> FixedShare:
        """Return the weights after labelled rows.

        Parameters
        ----------
        differences: ln p(label) of the changed answer minus that of the unchanged one, (N,), in the
            order of predictions; finite.
        """
        weight, evidence, labels = self.weight, self.evidence, self.labels
        for difference in differences:
            # Both probabilities are divided by the larger one, so that nothing overflows.
            ours = weight * math.exp(min(difference, 0.0))
            theirs = (1 - weight) * math.exp(min(-difference, 0.0))
            posterior = ours / (ours + theirs)
            weight = posterior * (1 - rate) + (1 - posterior) * rate
            evidence += difference
            labels += 1
        return FixedShare(weight, labels, evidence)
