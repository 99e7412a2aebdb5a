"""`python -m benchmarks.monitoring.sets`: the coverage of prediction sets in many streams.

Each stream has sets that promise 90%, and labels in cohorts of 500. The coverage of fixed
thresholds has a beta distribution over draws of their rows, from which each stream draws its own;
*exact* is 90%. Coverage falls by 5 points at label 5,137, or does not. The exit status is 1 if
false alarms are more than the promised rate explains.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from benchmarks.monitoring.streams import LABELS, ONSET
from benchmarks.monitoring.unlabelled import interval
from recalib.drift import Cohort, Monitor, MonitorOptions

_COVERAGE, _FALL, _COHORT = 0.9, 0.05, 500
#: Rows of the thresholds, None for a coverage that is exact; and the tolerance of the monitor.
_SETTINGS = ((None, 0.0), (1_000, 0.02), (10_000, 0.02))
#: The probability of as many false alarms, below which the promise is broken.
_UNLUCKY = 1e-3


def _alarm(
    rng: np.random.Generator, hits: NDArray[np.bool_], options: MonitorOptions
) -> int | None:
    """Return the label at which the sets are found not to cover what they promise."""
    monitor = Monitor([], options=options)
    for number, part in enumerate(np.split(hits, len(hits) // _COHORT)):
        covered = Cohort([_COHORT], np.full(_COHORT, _COVERAGE), part)
        coin = Cohort([1], np.array([0.5]), rng.random(1) < 0.5)  # of all traffic
        monitor.add(number, number + 1, coin, promised={"(sets)": covered})
    return monitor.assess(float(len(hits))).segments["(sets)"].evidence.rejected_at


def _alarms(
    rows: int | None, tolerance: float, fall: float, streams: int
) -> tuple[float, NDArray[np.float64]]:
    """Return the spread of coverage that the monitor allows for, and the alarms of the streams."""
    rng, law = np.random.default_rng([rows or 0, int(100 * fall)]), None
    if rows is not None:
        place = math.ceil((rows + 1) * _COVERAGE)
        law = scipy.stats.beta(place, rows + 1 - place)
    spread = 0.0 if law is None else float(np.abs(law.interval(0.95) - np.array(_COVERAGE)).max())
    options = MonitorOptions(set_coverage=_COVERAGE, set_spread=spread, tolerance=tolerance)
    alarms = []
    for _ in range(streams):
        coverage = _COVERAGE if law is None else law.rvs(random_state=rng)
        truth = coverage - fall * (np.arange(LABELS) >= ONSET)
        alarms.append(_alarm(rng, rng.random(LABELS) < truth, options))
    return spread, np.array([np.inf if at is None else at for at in alarms])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=1_000, help="a fifth of it with a fall")
    streams = parser.parse_args().streams
    promised = MonitorOptions().alpha / 2  # the sets have one of two shares
    print(f"coverage {_COVERAGE:.0%}, {LABELS:,} labels in a stream")
    print(f"{streams:,} streams of each kind, and {streams // 5:,} with a fall")
    print(f"promised rate of false alarms {promised:.1%}, over all streams and labels")
    print("thresholds  allowed  false alarms            found after the fall     median labels")
    is_met = True
    for rows, tolerance in _SETTINGS:
        spread, null = _alarms(rows, tolerance, 0.0, streams)
        _, fallen = _alarms(rows, tolerance, _FALL, streams // 5)
        false, late = np.isfinite(null).sum(), fallen[fallen > ONSET] - ONSET
        found = interval(int(np.isfinite(late).sum()), len(late))
        name = "exact" if rows is None else f"{rows:,}"
        print(
            f"{name:>10}  {tolerance + spread:7.2%}  {interval(int(false), streams)}  {found}  "
            f"{np.median(late):8,.0f}",
            flush=True,
        )
        is_met &= bool(scipy.stats.binom.sf(false - 1, streams, promised) >= _UNLUCKY)
    sys.exit(0 if is_met else 1)


if __name__ == "__main__":
    main()
