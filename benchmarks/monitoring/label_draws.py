"""`python -m benchmarks.monitoring.label_draws`: alarms on observations of multilabel models.

Every stream has 6,000 rows of ten labels, whose log-odds are normal with standard deviation 1.5. A
row is evidence about one label, drawn at random: for the test of all labels together and for the
test of that label, each with its half of α = 5%. Beside them is a test that takes all labels of a
row one after another, as if they were independent, with the same half.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks.monitoring.unlabelled import interval
from recalib.drift import CalibrationTest, ClassMonitor, ClassRows

Values = NDArray[np.float64]

_LABELS, _ROWS, _COHORT = 10, 6_000, 250
_TOLERANCE, _ALPHA = 0.02, 0.05


class _Scene(NamedTuple):
    """A kind of stream."""

    #: Return the true probabilities (N, K) from those of the calibrator.
    truth: Callable[[Values], Values]
    #: Whether labels of a row occur together: one random number decides all of them.
    is_dependent: bool
    #: Whether every label is within the tolerance.
    is_null: bool


def _calibrated(p: Values) -> Values:
    return p


def _tolerated(p: Values) -> Values:
    return np.clip(p - _TOLERANCE, 0, 1)


def _first_too_sure(p: Values) -> Values:
    """Let label 0 occur 20 points less often than its probability says."""
    truth = p.copy()
    truth[:, 0] = np.clip(p[:, 0] - 0.2, 0, 1)
    return truth


def _all_too_sure(p: Values) -> Values:
    return scipy.special.expit(scipy.special.logit(p) / 2)


SCENES: Mapping[str, _Scene] = {
    "calibrated, independent labels": _Scene(_calibrated, is_dependent=False, is_null=True),
    "calibrated, labels that occur together": _Scene(_calibrated, is_dependent=True, is_null=True),
    "off by the tolerance, labels that occur together": _Scene(
        _tolerated, is_dependent=True, is_null=True
    ),
    "one label 20 points too sure": _Scene(_first_too_sure, is_dependent=True, is_null=False),
    "log-odds of all labels twice too large": _Scene(
        _all_too_sure, is_dependent=True, is_null=False
    ),
}


class Outcome(NamedTuple):
    """Streams with an alarm of any test of drawn labels, of single labels, of all in turn."""

    drawn: int
    by_label: int
    in_turn: int
    #: Rows at each alarm of the drawn tests, at the end of its cohort.
    delays: list[int]


def measure(scene: _Scene, streams: int, seed: int = 0, rows: int = _ROWS) -> Outcome:
    """Run the streams of a kind."""
    drawn = by_label = in_turn = 0
    delays = []
    for number in range(streams):
        rng = np.random.default_rng([seed, number])
        together = CalibrationTest(alpha=_ALPHA / 2, tolerance=_TOLERANCE)
        sequence = CalibrationTest(alpha=_ALPHA / 2, tolerance=_TOLERANCE)
        labels = ClassMonitor(
            range(_LABELS), alpha=_ALPHA / 2, tolerance=_TOLERANCE, suspicion=10.0
        )
        alarm = 0
        for start in range(0, rows, _COHORT):
            p, y = draw(rng, scene, _COHORT)
            where = np.arange(_COHORT), rng.integers(_LABELS, size=_COHORT)
            # As the server stores a row: the drawn label is the predicted class.
            stored = np.where(y[where], where[1], -1)
            together.update(p[where], y[where])
            times = np.zeros(_COHORT)
            labels.add(
                start,
                start + _COHORT,
                ClassRows.from_top_labels(p[where], where[1], stored, times, range(_LABELS)),
            )
            if not sequence.rejected:
                sequence.update(p.ravel(), y.ravel())
            if not alarm and (together.rejected or labels.evidence().rejected):
                alarm = start + _COHORT
                delays.append(alarm)
        drawn += bool(alarm)
        by_label += labels.evidence().rejected
        in_turn += sequence.rejected
    return Outcome(drawn, by_label, in_turn, delays)


def draw(rng: np.random.Generator, scene: _Scene, rows: int) -> tuple[Values, NDArray[np.bool_]]:
    """Return probabilities and labels, (N, K)."""
    p: Values = scipy.special.expit(rng.normal(scale=1.5, size=(rows, _LABELS)))
    uniform = rng.random((rows, 1 if scene.is_dependent else _LABELS))
    return p, uniform < scene.truth(p)


def main() -> None:
    """Print a table; the exit status is 1 if drawn tests exceed α on a stream without an error."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="of each kind")
    args = parser.parse_args()
    met = True
    print(f"alarms within {_ROWS:,} rows, with exact 95% intervals; {args.streams} streams each")
    for name, scene in SCENES.items():
        outcome = measure(scene, args.streams)
        print(f"{name}\n  one drawn label a row  {interval(outcome.drawn, args.streams)}", end="")
        if outcome.delays:
            print(f", after {np.median(outcome.delays):,.0f} rows in the median", end="")
        print(f"\n    tests of single labels {interval(outcome.by_label, args.streams)}")
        print(f"  all labels in turn     {interval(outcome.in_turn, args.streams)}", flush=True)
        met &= not scene.is_null or outcome.drawn <= _ALPHA * args.streams
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
