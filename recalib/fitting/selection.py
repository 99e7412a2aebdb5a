"""Is a new calibrator better than what serves now? Answered on rows that its fit has not seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats, Integers
from recalib.calibrator import Calibrator
from recalib.card import Selection
from recalib.fitting.problem import Problem
from recalib.fitting.solvers import solve
from recalib.maps import Map, Parameters
from recalib.objectives import Objective
from recalib.ops import NumpyOps

__all__ = ["Candidate", "compare_by_cross_validation", "folds_of"]

_FOLDS = 5


@dataclass(frozen=True)
class Candidate:
    """A map with its objective: something that can be fitted to any rows."""

    map: Map
    objective: Objective


def compare_by_cross_validation(
    candidate: Candidate,
    reference: Candidate | Calibrator,
    logits: Floats,
    labels: Integers,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Return whether `candidate` beats `reference` by more than one standard error.

    The score is the negative log-likelihood of each row under a fit to the other folds (five, or
    as many as there are rows), stratified by label. A reference given as a candidate is refitted
    in the same folds, as it must be where it was fitted on these very rows; a calibrator that was
    fitted elsewhere is taken as it is. The standard error is that of the paired difference.

    Parameters
    ----------
    logits: (N, K), checked.
    labels: (N,), checked.
    progress: called with the folds done and their number.
    """
    folds = folds_of(labels)
    count = int(folds.max()) + 1
    name = reference.card.map if isinstance(reference, Calibrator) else reference.map.name
    if count < 2:
        return Selection(
            folds=count, nll=0.0, reference=name, reference_nll=0.0, standard_error=0.0,
            better=False, reason="one row cannot be cross-validated",
        )  # fmt: skip
    ours, theirs = np.empty(len(labels)), np.empty(len(labels))
    for fold in range(count):
        out = folds == fold
        ours[out] = _scores(candidate, logits, labels, out)
        theirs[out] = _scores(reference, logits, labels, out)
        if progress is not None:
            progress(fold + 1, count)
    return _verdict(ours, theirs, count, candidate.map.name, name)


def folds_of(labels: Integers) -> NDArray[np.int64]:
    """Return the fold of each row: classes spread evenly, the same for the same labels."""
    order = np.random.default_rng(0).permutation(len(labels))
    by_label = order[np.argsort(labels[order], kind="stable")]
    folds = np.empty(len(labels), dtype=np.int64)
    folds[by_label] = np.arange(len(labels)) % min(_FOLDS, len(labels))
    return folds


def _verdict(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], folds: int, name: str, reference: str
) -> Selection:
    difference = theirs - ours
    gain = float(difference.mean())
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    better = gain > error
    verb = "beats" if better else "does not beat"
    return Selection(
        folds=folds,
        nll=float(ours.mean()),
        reference=reference,
        reference_nll=float(theirs.mean()),
        standard_error=error,
        better=better,
        reason=f"{name} {verb} {reference} by more than one standard error: "
        f"NLL lower by {gain:.3g} ± {error:.2g} on held-out folds",
    )


def _scores(
    contender: Candidate | Calibrator, logits: Floats, labels: Integers, out: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return −log p(y) of the rows `out`, under a fit to the others."""
    if isinstance(contender, Calibrator):
        return _negative_log_likelihoods(
            contender.map, contender.parameters, logits[out], labels[out]
        )
    solution = solve(Problem(contender.map, contender.objective, logits[~out], labels[~out]))
    return _negative_log_likelihoods(contender.map, solution.parameters, logits[out], labels[out])


def _negative_log_likelihoods(
    map: Map,
    parameters: Parameters,
    logits: Floats,
    labels: Integers,
) -> NDArray[np.float64]:
    ops = NumpyOps()
    constants = map.constants(ops, parameters)
    log_p = map.log_probabilities(ops, logits.astype(np.float64, copy=False), constants)
    # A mixture whose every term underflows says "under 1e-323", not "impossible".
    scores: NDArray[np.float64] = np.minimum(-ops.pick(log_p, labels), 750.0)
    return scores
