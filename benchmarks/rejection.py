"""The risk among accepted rows, and how many are accepted: `python -m benchmarks.rejection`.

The ten populations of `benchmarks.sets`. The risk is a share of the error rate without rejection.
Each draw has rows whose confidences say where the tests begin, as those of a map do, and rows for
the tests. The oracle is the lowest threshold that keeps the risk in the population, by 100,000 rows
and their true probabilities. Shares of accepted rows are relative to the oracle's; a draw without a
threshold accepts none. `broken` is the share of draws whose threshold has a larger risk, with its
exact 99% interval; it is promised to be at most 10%.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress

import numpy as np
import scipy.special
import scipy.stats

from benchmarks.sets import POPULATIONS
from recalib.core.card import RejectionOptions
from recalib.drift.reference_histogram import reference_histogram
from recalib.errors import InputError
from recalib.sets.rejection import rejection_threshold

_LARGE, _SURENESS = 100_000, 0.9


def main() -> None:
    """Print the table; the exit status is 1 if more than 10% of draws are surely broken."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--draws", type=int, default=400, help="of each population")
    parser.add_argument("--rows", type=int, default=2_000, help="of a draw, for the tests")
    parser.add_argument("--share", type=float, default=0.25, help="the risk, of the error rate")
    arguments = parser.parse_args()
    print(f"{arguments.rows:,} rows, {arguments.draws} draws, sureness {_SURENESS:.0%}")
    print(f"{'population':32} risk   oracle  starts     accepted  none   broken")
    rng, is_kept = np.random.default_rng(0), True
    for name, population in POPULATIONS.items():
        served, _ = population.draw(rng, _LARGE)
        order = np.argsort(-served.max(axis=1))
        confidence = np.exp(served.max(axis=1))[order]
        p_true = scipy.special.softmax(served / population.sharpness, axis=1)
        wrong = 1 - p_true[np.arange(_LARGE), served.argmax(axis=1)][order]
        risks = np.cumsum(wrong) / np.arange(1, _LARGE + 1)
        risk = risks[-1] * arguments.share
        oracle = int(np.flatnonzero(risks <= risk)[-1]) + 1
        options = RejectionOptions(risk=risk, sureness=_SURENESS)
        accepted: dict[str, list[int]] = {"fixed": [], "quantiles": []}
        for _ in range(arguments.draws):
            (others, _), (rows, labels) = (population.draw(rng, arguments.rows) for _ in "ab")
            reference = reference_histogram(np.exp(others.max(axis=1)))
            top, correct = np.exp(rows.max(axis=1)), rows.argmax(axis=1) == labels
            for starts, histogram in (("fixed", None), ("quantiles", reference)):
                share = 0
                with suppress(InputError):
                    rule = rejection_threshold(top, correct, options, histogram)
                    share = int(np.sum(confidence >= rule.threshold))
                accepted[starts].append(share)
        for starts, counts in accepted.items():
            found = np.array([count for count in counts if count], np.int64)
            broken = int(np.sum(risks[found - 1] > risk))
            interval = scipy.stats.binomtest(broken, arguments.draws).proportion_ci(0.99)
            is_kept &= bool(interval.low <= 1 - _SURENESS)
            print(
                f"{name:32} {risk:5.3f} {oracle / _LARGE:7.1%}  {starts:9} "
                f"{np.mean(counts) / oracle:9.1%} {1 - len(found) / len(counts):5.1%} "
                f"{broken / len(counts):8.2%} ({interval.low:.2%} to {interval.high:.2%})",
                flush=True,
            )
    sys.exit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
