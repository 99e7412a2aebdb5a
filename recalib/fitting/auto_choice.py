"""What the card says about the choice of `auto`.

Legend: N rows, C columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.card import (
    AutoChoice,
    CandidateResult,
    MetricValue,
    PolicyWinner,
    PredictionPolicy,
)
from recalib.fitting.cross_validation import Candidate, HeldOutScores
from recalib.fitting.racing import Entry
from recalib.fitting.winners import Sample, Winner
from recalib.stats.groups import group_counts, group_sums

#: Numbers of rows (N,) by name.
Columns = Mapping[str, NDArray[Any]]

_RESAMPLES = 1_000
#: More rows are summed into this many groups, which are resampled.
_MAX_GROUPS = 1_000
#: A better map that a policy leaves out is named if it is better by this many standard errors.
_CLEAR = 2.0

_CHANGES = {
    "keep": "it may change predictions",
    "keep_order": "it may change the order by P(y = 1)",
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of the comparison of N rows."""

    #: Asked for.
    predictions: PredictionPolicy
    entries: Sequence[Entry]
    #: Of the entries that have all folds.
    scores: Mapping[Candidate, HeldOutScores]
    #: Of each policy.
    winners: Mapping[PredictionPolicy, Winner]
    #: The policy whose winner is the choice: another than asked for if that was refused.
    chosen: PredictionPolicy
    sample: Sample
    #: (N,), the classifier's predictions.
    predicted: NDArray[np.intp]
    folds: int
    smoothing: float
    #: Why these rows determine no temperature; None if they do.
    undetermined: str | None = None
    #: The best of all maps, if its accuracy was too low.
    refused: Winner | None = None

    @property
    def reference(self) -> Candidate:
        """Temperature scaling."""
        return next(candidate for candidate in self.scores if candidate.map.name == "temperature")

    @property
    def winner(self) -> Winner:
        """The choice."""
        return self.winners[self.chosen]

    def accuracy_loss(self, winner: Winner) -> tuple[float, float]:
        """Return how much lower its accuracy is than that of `keep`, and the standard error."""
        return self.sample.mean(self.winners["keep"].correct - winner.correct)


def winner_sentences(choice: AutoChoice) -> list[str]:
    """Return a sentence about the winner of each policy, for people."""
    sentences = []
    for winner in choice.winners:
        shares = [f"{name} {weight:.2g}" for name, weight in winner.members.items()]
        members = ", ".join(shares if len(shares) > 1 else winner.members)
        text = f"{winner.predictions}: {members}"
        text += f", NLL {winner.nll.value:.4f}, accuracy {winner.accuracy.value:.2%}"
        if winner.predictions != "keep":
            text += (
                f"; over keep: NLL {_interval(winner.nll_difference, '+.4f')}, "
                f"accuracy {_interval(winner.accuracy_difference, '+.2%')}"
            )
        sentences.append(f"{text}; changes {winner.changed:.2%} of the predictions")
    return sentences


def _interval(value: MetricValue, form: str) -> str:
    if value.low is None or value.high is None:
        return format(value.value, form)
    return f"{value.value:{form}} ({value.low:{form}} to {value.high:{form}})"


def describe_default(
    identity: Candidate,
    contenders: Sequence[Candidate],
    reason: str,
    rows: int,
    predictions: PredictionPolicy,
) -> AutoChoice:
    """Return the part of the card for rows on which nothing is compared."""
    return AutoChoice(
        map=identity.map.name,
        objective=identity.objective.name,
        reason=f"{identity.name}: {reason}",
        rows=rows,
        folds=0,
        preserve_accuracy=predictions == "keep",
        candidates=tuple(
            CandidateResult(
                candidate.map.name, candidate.objective.name, 0.0, candidate == identity, reason,
                weight=float(candidate == identity),
            )
            for candidate in contenders
        ),
        predictions=predictions,
    )  # fmt: skip


def describe(outcome: Outcome, map: str) -> AutoChoice:
    """Return the part of the card; `map` is the name of the map to fit."""
    name = outcome.winner.name
    weights = outcome.winner.weights
    reason = f"{name}: {_reason(outcome)}"
    values = _bootstrap_all(_candidate_columns(outcome) | _winner_columns(outcome), outcome.sample)
    candidates = tuple(
        CandidateResult(
            entry.candidate.map.name,
            entry.candidate.objective.name,
            entry.seconds,
            entry.candidate in weights,
            _verdict(entry, outcome),
            **values.get(entry.candidate, {}),
            weight=weights.get(entry.candidate, 0.0),
        )
        for entry in outcome.entries
    )
    return AutoChoice(
        map=map,
        objective=next(iter(weights)).objective.name,
        reason=reason,
        rows=outcome.sample.rows,
        folds=outcome.folds,
        preserve_accuracy=outcome.predictions == "keep",
        candidates=candidates,
        predictions=outcome.predictions,
        smoothing=outcome.smoothing,
        winners=_policy_winners(outcome, values),
    )


def _reason(outcome: Outcome) -> str:
    """Return why the winner is the choice, and which better map a policy leaves out."""
    winner = outcome.winner
    text = outcome.undetermined or _comparison(outcome)
    if outcome.smoothing:
        text += f"; probabilities are first mixed with {outcome.smoothing:.2g} of uniform ones"
    if outcome.refused is not None:
        loss, error = outcome.accuracy_loss(outcome.refused)
        text += f"; {outcome.refused.name} is refused: accuracy lower by {loss:.2%} ± {error:.2%}"
    elif outcome.predictions in _CHANGES:
        free = outcome.winners["may_change"]
        gain, error = outcome.sample.mean(winner.scores.nll - free.scores.nll)
        if gain > _CLEAR * error:
            why = _CHANGES[outcome.predictions]
            text += f"; left out, because {why}: {free.name}, NLL lower by {gain:.3g} ± {error:.2g}"
    return text


def _comparison(outcome: Outcome) -> str:
    """Return by how much the winner is better than temperature scaling."""
    winner, reference = outcome.winner, outcome.reference
    if list(winner.weights) == [reference]:
        return "no other map is better on held-out folds"
    change = _change(outcome, outcome.scores[reference].nll - winner.scores.nll)
    return f"the best, {change} than {reference.name}'s on held-out folds"


def _change(outcome: Outcome, gains: NDArray[np.float64]) -> str:
    gain, error = outcome.sample.mean(gains)
    return f"NLL {'lower' if gain >= 0 else 'higher'} by {abs(gain):.3g} ± {error:.2g}"


def _verdict(entry: Entry, outcome: Outcome) -> str:
    """Return why a candidate is part of the choice or not."""
    weight = outcome.winner.weights.get(entry.candidate)
    if weight is not None:
        return "the choice" if weight == 1 else f"{weight:.1%} of the choice"
    if entry.reason:
        return entry.reason
    if not allows(outcome.chosen, entry.candidate):
        return _CHANGES[outcome.chosen]
    gains = outcome.winner.scores.nll - outcome.scores[entry.candidate].nll
    return f"{_change(outcome, gains)} than the choice's"


def allows(predictions: PredictionPolicy, candidate: Candidate) -> bool:
    """Return whether the policy allows a candidate."""
    if predictions == "keep":
        return candidate.map.preserves_accuracy
    return predictions == "may_change" or candidate.map.preserves_order


def _policy_winners(
    outcome: Outcome, values: Mapping[Candidate | str, Mapping[str, MetricValue]]
) -> tuple[PolicyWinner, ...]:
    """Return the winners with their values."""
    return tuple(
        PolicyWinner(
            predictions=policy,
            members={candidate.name: weight for candidate, weight in winner.weights.items()},
            chosen=policy == outcome.chosen,
            changed=float(outcome.sample.shares @ (winner.predicted != outcome.predicted)),
            **values[policy],
        )
        for policy, winner in outcome.winners.items()
    )


def _winner_columns(outcome: Outcome) -> dict[Candidate | str, Columns]:
    """Return each winner's scores and its differences from the winner of `keep`."""
    keep = outcome.winners["keep"]
    return {
        policy: {
            "nll": winner.scores.nll,
            "accuracy": winner.correct,
            "nll_difference": winner.scores.nll - keep.scores.nll,
            "accuracy_difference": winner.correct - keep.correct,
        }
        for policy, winner in outcome.winners.items()
    }


def _candidate_columns(outcome: Outcome) -> dict[Candidate | str, Columns]:
    """Return NLL, Brier score and the difference of NLLs from temperature's."""
    scores, base = outcome.scores, outcome.scores[outcome.reference].nll
    return {
        candidate: {"nll": s.nll, "brier": s.brier, "nll_difference": s.nll - base}
        for candidate, s in scores.items()
    }


def _bootstrap_all(
    columns: Mapping[Candidate | str, Columns], sample: Sample
) -> dict[Candidate | str, dict[str, MetricValue]]:
    """Return the mean of each named column (N,) of each key, with its interval."""
    flat = [column for named in columns.values() for column in named.values()]
    values = iter(_bootstrap(np.stack(flat, axis=1), sample))
    return {key: {name: next(values) for name in named} for key, named in columns.items()}


def _bootstrap(columns: NDArray[np.float64], sample: Sample) -> list[MetricValue]:
    """Return the mean of each column of (N, C) with a 95% interval by the percentile bootstrap.

    All columns are resampled together, so differences are paired. Rows of a group are resampled
    together. Many rows are first summed into random parts, which have the same sampling
    distribution.
    """
    rng = np.random.default_rng(0)
    w = np.ones(len(columns)) if sample.weights is None else sample.weights
    weighted = np.column_stack([columns * w[:, None], w])
    if sample.groups is not None:
        weighted = np.stack([group_sums(sample.groups, column) for column in weighted.T], axis=1)
    groups = min(len(weighted), _MAX_GROUPS)
    shuffled = weighted[rng.permutation(len(weighted))]
    sums = np.add.reduceat(shuffled, np.arange(groups) * len(weighted) // groups, axis=0)
    draws = (rng.integers(groups, size=groups) for _ in range(_RESAMPLES))
    totals = np.array([group_counts(draw, groups) for draw in draws], np.float64) @ sums
    means = totals[:, :-1] / totals[:, -1:]
    values = np.average(columns, axis=0, weights=w)
    low, high = np.quantile(means, [0.025, 0.975], axis=0)
    return [MetricValue(*(float(x) for x in row)) for row in zip(values, low, high, strict=True)]
