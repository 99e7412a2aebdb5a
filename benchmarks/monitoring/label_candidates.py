"""`python -m benchmarks.monitoring.label_candidates`: candidates of multilabel models.

A model has K independent labels, whose log-odds are normal with mean −1.5 and standard deviation 2.
The champion is calibrated. Then the log-odds of one label become too large by a factor, and the
candidate is a fit of `platt` to 1,000 rows from after that. It is compared with the champion by the
mean over labels of the Brier score, as the first candidate of a champion with α = 5%. With a factor
of 1 there is no change: the champion is the truth, so every promotion is false.
"""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import ScoreTest
from recalib.fitting import fit

Values = NDArray[np.float64]

_FIT_ROWS, _COHORT = 1_000, 500
#: Of the first candidate, of 5% for all: α / (j (j + 1)).
_ALPHA = 0.025


class Comparison(NamedTuple):
    """The end of a comparison."""

    promoted: bool
    labelled_rows: int
    #: Mean gain in Brier score, summed over labels: that of label 0, less the errors of the fit.
    gain: float


def draw(
    rng: np.random.Generator, rows: int, labels: int, factor: float
) -> tuple[Values, NDArray[np.bool_]]:
    """Return log-odds and labels, (N, K); those of label 0 are too large by `factor`."""
    z: Values = rng.normal(-1.5, 2, size=(rows, labels))
    true = z.copy()
    true[:, 0] /= factor
    return z, rng.random(z.shape) < expit(true)


def compare(labels: int, factor: float, rng: np.random.Generator) -> Comparison:
    """Compare a candidate with the champion until the verdict."""
    candidate = fit(*draw(rng, _FIT_ROWS, labels, factor), "platt", task="multilabel")
    test = ScoreTest(alpha=_ALPHA)
    while test.verdict is None:
        z, y = draw(rng, _COHORT, labels, factor)
        scores = [2 * ((p - y) ** 2).mean(axis=1) for p in (expit(z), candidate.predict(z))]
        test.update(*scores)
    gain = labels * (test.mean_difference or 0.0)
    return Comparison(test.verdict == "better", test.decided_at or test.labels, gain)


def main() -> None:
    """Print a table; the exit status is 1 if false promotions exceed α."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200, help="of each line")
    runs = parser.parse_args().runs
    met = True
    print(f"promotions with exact 95% intervals; {runs} candidates each, alpha {_ALPHA}")
    for labels in (5, 20, 80):
        for factor in (1.0, 2.0, 4.0):
            rng = np.random.default_rng([labels, int(factor)])
            results = [compare(labels, factor, rng) for _ in range(runs)]
            promoted = sum(result.promoted for result in results)
            rows = np.median([result.labelled_rows for result in results])
            gain = np.mean([result.gain for result in results])
            print(
                f"K = {labels}, factor {factor:g}: {interval(promoted, runs)}, {rows:,.0f} rows in "
                f"the median, summed gain {gain:.3f}",
                flush=True,
            )
            met &= factor > 1 or promoted <= _ALPHA * runs
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
