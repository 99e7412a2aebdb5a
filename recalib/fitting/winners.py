"""The best of some candidates by their predictions of held-out rows: one of them, or a mixture.

Legend: N rows, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from recalib.core.arrays import Integers, Numbers
from recalib.core.options import options_of
from recalib.fitting.cross_validation import (
    Candidate,
    HeldOutScores,
    class_scores,
    effective_size,
    mean_and_standard_error,
)
from recalib.fitting.racing import REFERENCES, Entry
from recalib.maps.stack import Member, Stack
from recalib.objectives.nll import NegativeLogLikelihood

#: The cost of other maps than temperature scaling, in standard errors of the difference of NLLs:
#: a quarter, and one more with 25 rows.
_COST, _COST_OF_FEW_ROWS = 0.25, 25.0
#: What other maps than the references have to gain, in nats: a tie is no reason for one of them.
_LEAST_GAIN = 1e-6
#: Weights have this many digits.
_DIGITS = 4
#: Finite, so that no sum is NaN.
_LEAST_LOG = -750.0
#: A member with less weight is dropped, and the others are weighted again.
_LEAST_WEIGHT = 0.05


@dataclass(frozen=True, eq=False)
class Sample:
    """The compared rows: their weights and groups, None for equal ones and for none."""

    rows: int
    weights: Numbers | None
    groups: NDArray[np.intp] | None

    def subset(self, rows: NDArray[np.intp]) -> Sample:
        """Return the sample of the rows with these indices; groups are numbered from 0."""
        weights = None if self.weights is None else self.weights[rows]
        groups = (
            None if self.groups is None else np.unique(self.groups[rows], return_inverse=True)[1]
        )
        return Sample(len(rows), weights, groups)

    @property
    def size(self) -> float:
        """The effective number of independent rows."""
        return effective_size(self.rows, self.weights, self.groups)

    @property
    def shares(self) -> Numbers:
        """The weights (N,) with sum 1."""
        weights = np.ones(self.rows) if self.weights is None else self.weights
        return weights / weights.sum()

    def mean(self, values: NDArray[np.float64]) -> tuple[float, float]:
        """Return the mean of `values` (N,) and its standard error."""
        return mean_and_standard_error(values, self.weights, self.groups)


@dataclass(frozen=True, eq=False)
class Winner:
    """A candidate, or several with the weights of their mixture."""

    weights: Mapping[Candidate, float]
    scores: HeldOutScores
    #: (N,), the predicted classes of held-out rows.
    predicted: Integers
    #: (N,), 1 where that is the label, otherwise 0.
    correct: NDArray[np.float64]

    @classmethod
    def of(
        cls, weights: Mapping[Candidate, float], entries: Sequence[Entry], labels: Integers
    ) -> Winner:
        """Return the winner with the scores of its held-out predictions."""
        of_candidate = {entry.candidate: entry.log_p for entry in entries}
        logs = [of_candidate[candidate].astype(np.float64) for candidate in weights]
        if len(logs) == 1:
            log_p = logs[0]
        else:
            pairs = zip(weights.values(), logs, strict=True)
            mixture = sum(weight * np.exp(log) for weight, log in pairs)
            log_p = np.log(np.maximum(mixture, np.finfo(np.float64).tiny))
        predicted = log_p.argmax(axis=1)
        correct = (predicted == labels).astype(np.float64)
        return cls(weights, class_scores(log_p, labels), predicted, correct)

    @property
    def name(self) -> str:
        """The name in messages."""
        if len(self.weights) == 1:
            return next(iter(self.weights)).name
        members = (f"{candidate.name} {weight:.2g}" for candidate, weight in self.weights.items())
        return f"stack of {', '.join(members)}"

    def candidate(
        self, smoothing: float, with_strength: Callable[[Candidate], Candidate]
    ) -> Candidate:
        """Return the candidate to fit to all rows, for probabilities with this smoothing.

        Parameters
        ----------
        with_strength: returns a member with the strength of its penalty that the folds had.
        """
        if len(self.weights) == 1 and smoothing == 0:
            return next(iter(self.weights))
        members = (
            Member(candidate.map.name, weight, options_of(with_strength(candidate).map))
            for candidate, weight in self.weights.items()
        )
        return Candidate(Stack(tuple(members), smoothing=smoothing), NegativeLogLikelihood())


def find_weights(
    entries: Sequence[Entry], labels: Integers, sample: Sample, *, price: float = 0.5
) -> dict[Candidate, float]:
    """Return the weights of the candidates that predict held-out rows best, without zeros.

    Candidates by NLL may be mixed; their weights minimise the NLL of the mixture. Other maps than
    temperature scaling have a cost that falls with the number of rows, and each further member of
    the mixture has a price. A single candidate wins if no mixture is better.

    Parameters
    ----------
    entries: with log-probabilities of the rows (N, K).
    price: of a further member, in rows: it must be worth the NLL of half a row.
    """
    rows = np.arange(len(labels))
    log_p = np.stack([entry.log_p[rows, labels] for entry in entries], axis=1).astype(np.float64)
    np.maximum(log_p, _LEAST_LOG, out=log_p)
    names = [entry.candidate.map.name for entry in entries]
    plain = names.index("temperature" if "temperature" in names else "identity")
    errors = np.array([sample.mean(column - log_p[:, plain])[1] for column in log_p.T])
    costs = (_COST + _COST_OF_FEW_ROWS / sample.size) * errors
    costs += np.where([name in REFERENCES for name in names], 0.0, _LEAST_GAIN)
    losses = costs - sample.shares @ log_p
    best = int(np.argmin(losses))
    mixed = np.flatnonzero([_is_mixed(entry.candidate) for entry in entries])
    if len(mixed) > 1:
        least = price * (losses - costs).min() / sample.size
        weights, loss = mixture_weights(log_p[:, mixed], sample.shares, costs[mixed], least)
        if loss <= losses[best]:
            pairs = zip(mixed.tolist(), _round(weights).tolist(), strict=True)
            return {entries[i].candidate: weight for i, weight in pairs if weight > 0}
    return {entries[best].candidate: 1.0}


def _is_mixed(candidate: Candidate) -> bool:
    """Return whether a candidate may be a member of a stack."""
    return candidate.objective.name == "nll" and not isinstance(candidate.map, Stack)


def _round(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights of few digits with sum 1."""
    rounded = np.round(weights, _DIGITS)
    largest = int(rounded.argmax())
    rounded[largest] = np.round(1 - np.delete(rounded, largest).sum(), _DIGITS)
    return rounded


_Members = NDArray[np.intp]


def mixture_weights(
    log_p: Numbers, row_weights: Numbers, costs: Numbers, price: float = 0.0
) -> tuple[Numbers, float]:
    """Return the weights w (M,) on the simplex that minimise −Σ r_i log Σ w_m p_im + Σ c_m w_m.

    The problem is convex. A member whose weight would be below .05 gets 0, and so does one without
    which the minimum rises by less than `price`. The second number is the minimum.

    Parameters
    ----------
    log_p: (N, M), log p_im: of the label of row i under member m, which was not fitted on the row.
    row_weights: (N,), r_i, with sum 1.
    costs: (M,), c_m, in nats.
    """
    largest = log_p.max(axis=1, keepdims=True)
    ratios = np.exp(log_p - largest)

    def solve(members: _Members) -> tuple[_Members, Numbers, float]:
        while True:
            weights, value = _minimise(ratios[:, members], row_weights, costs[members])
            if weights.min() >= _LEAST_WEIGHT:
                return members, weights, value
            members = members[weights >= _LEAST_WEIGHT]

    best = solve(np.arange(log_p.shape[1]))
    while len(best[0]) > 1:
        fewer = [solve(np.delete(best[0], i)) for i in range(len(best[0]))]
        next_best = min(fewer, key=lambda solution: solution[2])
        if next_best[2] - best[2] > price:
            break
        best = next_best
    members, weights, value = best
    result = np.zeros(log_p.shape[1])
    result[members] = weights
    return result, value - float(row_weights @ largest[:, 0])


def _minimise(ratios: Numbers, rows: Numbers, costs: Numbers) -> tuple[Numbers, float]:
    """Return the weights on the simplex and the minimum, for p = `ratios` (N, M)."""

    def objective(weights: Numbers) -> tuple[float, Numbers]:
        mixture = np.maximum(ratios @ weights, np.finfo(np.float64).tiny)
        slopes = costs - (rows / mixture) @ ratios
        return float(costs @ weights - rows @ np.log(mixture)), slopes

    count = len(costs)
    result = scipy.optimize.minimize(
        objective,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(count)},
        options={"ftol": 1e-10, "maxiter": 200},
    )
    weights: Numbers = np.clip(result.x, 0, None)
    weights /= weights.sum()
    return weights, objective(weights)[0]
