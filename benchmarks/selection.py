"""`python -m benchmarks.selection`: is `map: auto` ever worse than plain temperature scaling?

Each experiment of `benchmarks.suite` is drawn several times. Each time, `auto` and `temperature`
are fitted to the same rows, and their negative log-likelihoods on other rows are compared. Output
for each: the mean NLLs, the relative difference in percent (positive if `auto` is worse), its 95%
upper bound (bootstrap of draws, and of paired rows within each draw), and the chosen maps.

The goal: no bound over 0.5%, if test rows and calibration rows have the same distribution.
`--predictions keep` has only maps that never change predictions; `--effort 0.2` draws a fifth as
often; a word restricts the experiments to names that contain it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.suite import Experiment, Rows, experiments
from recalib.fitting.cross_validation import Candidate
from recalib.fitting.request import resolve_fit
from recalib.ops import NumpyOps

_LIMIT = 0.005
_RESAMPLES = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="?", default="", help="part of an experiment's name")
    parser.add_argument("--predictions", choices=["may_change", "keep"], default="may_change")
    parser.add_argument("--effort", type=float, default=1.0, help="scales how often each is drawn")
    arguments = parser.parse_args()
    missed = []
    print(f"{'':45s} {'temperature':>11s} {'auto':>8s} {'higher by':>9s} {'at most':>8s}  chosen")
    for experiment in experiments(arguments.effort):
        if arguments.only in experiment.name:
            bound = _compare(experiment, arguments.predictions)
            if bound > _LIMIT and experiment.alike:
                missed.append(experiment.name)
    print(f"missed: {len(missed)} {missed or ''}")
    sys.exit(1 if missed else 0)


def _compare(experiment: Experiment, predictions: str) -> float:
    """Print an experiment's line, and return the upper bound."""
    rng = np.random.default_rng(0)
    policy = resolve_fit("auto", "nll", {"predictions": predictions})
    temperature = resolve_fit("temperature", "nll", {})
    assert isinstance(temperature, Candidate)
    assert not isinstance(policy, Candidate)
    pairs, counts = [], Counter[str]()
    for _ in range(experiment.draws):
        rows, test = experiment.draw(rng)
        winner, _ = policy.choose(rows.logits, rows.labels, None, None, None)
        counts[winner.name] += 1
        base = _nll(temperature, rows, test)
        pairs.append((base, base if winner == temperature else _nll(winner, rows, test)))
    bases, autos = (np.mean([pair[i].mean() for pair in pairs]) for i in (0, 1))
    bound = float(np.quantile(_resampled(pairs, rng), 0.95))
    mark = "" if bound <= _LIMIT else "  <<<" if experiment.alike else "  (not alike)"
    names = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    print(
        f"{experiment.name:45s} {bases:11.4f} {autos:8.4f} {autos / bases - 1:+9.2%} {bound:+8.2%}"
        f"  {names}{mark}",
        flush=True,
    )
    return bound


def _nll(candidate: Candidate, rows: Rows, test: Rows) -> NDArray[np.float64]:
    parameters = candidate.fit(rows.logits, rows.labels).parameters
    ops = NumpyOps()
    log_p = candidate.map.log_probabilities(ops, test.logits, parameters)
    return np.minimum(-ops.pick(log_p, test.labels), 750.0)


def _resampled(
    pairs: list[tuple[NDArray[np.float64], NDArray[np.float64]]], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the relative difference of the NLLs in each resample."""
    differences = np.zeros(_RESAMPLES)
    differing = [i for i, (base, auto) in enumerate(pairs) if base is not auto]
    if not differing:
        return differences
    for i in range(_RESAMPLES):
        bases = autos = 0.0
        for draw in rng.integers(len(pairs), size=len(pairs)):
            base, auto = pairs[draw]
            if base is auto:
                mean = float(base.mean())
                bases, autos = bases + mean, autos + mean
            else:
                rows = rng.integers(len(base), size=len(base))
                bases, autos = bases + float(base[rows].mean()), autos + float(auto[rows].mean())
        differences[i] = autos / bases - 1
    return differences


if __name__ == "__main__":
    main()
