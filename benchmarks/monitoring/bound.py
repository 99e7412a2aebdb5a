"""`python -m benchmarks.monitoring.bound`: delay of the test beside what information allows.

No test with a false alarm rate of α finds a drift that exists from the first label in fewer labels,
on average, than ln(1/α)/r, where r is the mean Kullback-Leibler divergence of the true accuracy at
each confidence from the nearest tolerated one. For a gradual drift the bound is the label at which
the divergences add up to ln(1/α). The oracle knows the drift and its first label, and bets
accordingly. ADWIN looks for any change; it finds no drift that exists from the first label.

Confidences are those of a binary classifier (see `streams`), and of 10 and 100 classes with normal
logits of deviation 4 and 5; their mean is 0.79, 0.74 and 0.65. Outcomes depend on the confidence
alone: the truth is the mean accuracy at the confidence.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from benchmarks.monitoring.detectors import DETECTORS, available
from recalib.drift import CalibrationTest

Values = NDArray[np.float64]

_ALPHA, _TOLERANCE = 0.05, 0.02
_ONSETS = (0, 5_137)
_GRADUAL = 5_000
#: Drifts with a larger bound are not measured; streams end at this multiple of the bound.
_MAX_BOUND, _LENGTH = 15_000, 5
_GOAL = 3.0
#: Rows from which the rows of streams are drawn, quantiles of confidence at which the mean accuracy
#: is taken, and rows of a call.
_ROWS, _QUANTILES, _CALL = 40_000, 200, 512
_NULL_LABELS = 20_000


class Drift(NamedTuple):
    """Confidences (M,) that are equally likely, and the accuracy of each after the drift."""

    confidences: Values
    truth: Values
    #: Labels until the whole drift has come.
    duration: int = 0

    def accuracy(self, rows: NDArray[np.intp], since: Values) -> Values:
        """Return the accuracy of rows that come this number of labels after the onset."""
        share = np.clip((since + 1) / self.duration, 0, 1) if self.duration else since >= 0
        return self.confidences[rows] + share * (self.truth - self.confidences)[rows]

    def bound(self) -> float:
        """Return the number of labels at which the divergences add up to ln(1/α)."""
        c, needed = self.confidences, -np.log(_ALPHA)
        if not self.duration:
            rate = _divergence(self.truth, c).mean()
            return float(needed / rate) if rate > 0 else np.inf
        steps = np.linspace(0, 1, 101)
        rates = [_divergence(c + share * (self.truth - c), c).mean() for share in steps]
        at = np.arange(1, 100_001)
        total = np.cumsum(np.interp(at / self.duration, steps, rates))
        return float(np.searchsorted(total, needed) + 1)


def drifts(classes: int) -> dict[str, Drift]:
    """Return the drifts of a classifier, by name."""
    rng = np.random.default_rng([7, classes])
    if classes == 2:
        top = np.abs(rng.normal(1.5, 1.5, _ROWS))
        logits = np.stack([top, np.zeros(_ROWS)], axis=1)
    else:
        logits = (4.0 if classes == 10 else 5.0) * rng.standard_normal((_ROWS, classes))
    probabilities = scipy.special.softmax(logits, axis=1)
    rows, top = np.arange(_ROWS), logits.argmax(axis=1)
    c = probabilities[rows, top]

    def temperature(factor: float) -> Values:
        truth = scipy.special.softmax(logits / factor, axis=1)[rows, top]
        return _mean_accuracy(c, truth)

    result = {f"T x {factor}": Drift(c, temperature(factor)) for factor in _FACTORS}
    result["gradual, T x 1.5"] = Drift(c, temperature(1.5), _GRADUAL)
    result["5% wrong labels"] = Drift(c, 0.95 * c + 0.05 * (1 - c) / (classes - 1))
    result["prior shift"] = Drift(c, scipy.special.expit(scipy.special.logit(c) - 0.5))
    result["local"] = Drift(c, np.where((c > 0.8) & (c < 0.9), c - 0.15, c))
    return result


def other_drifts(classes: int) -> dict[str, Drift]:
    """Return drifts that no setting of the test was chosen for, by name."""
    c = drifts(classes)["local"].confidences
    odds = scipy.special.logit(c)

    def local(low: float, high: float, shift: float) -> Drift:
        truth = np.where((c > low) & (c < high), c + shift, c)
        return Drift(c, np.clip(truth, 1e-9, 1 - 1e-9))

    def line(slope: float, intercept: float) -> Drift:
        return Drift(c, scipy.special.expit(slope * odds + intercept))

    return {
        ".57-.67, -.13": local(0.57, 0.67, -0.13),
        ".72-.84, -.10": local(0.72, 0.84, -0.10),
        ".86-.94, -.14": local(0.86, 0.94, -0.14),
        ".92-.98, -.10": local(0.92, 0.98, -0.10),
        ".70-.80, +.13": local(0.70, 0.80, 0.13),
        "slope .77": line(0.77, 0.0),
        "slope .65, -.3": line(0.65, -0.3),
        "slope .75, +.25": line(0.75, 0.25),
        "slope 1.3": line(1.3, 0.0),
        "intercept -.4": line(1.0, -0.4),
        "intercept +.35": line(1.0, 0.35),
        "10% wrong": Drift(c, 0.9 * c),
    }


_FACTORS = (1.1, 1.2, 1.3, 1.4, 1.5, 1.6)


def _mean_accuracy(confidences: Values, truth: Values) -> Values:
    """Return the mean truth of the rows of similar confidence, relative to the confidence."""
    groups = np.array_split(np.argsort(confidences), _QUANTILES)
    result = confidences.copy()
    for group in groups:
        result[group] += np.mean(truth[group] - confidences[group])
    return np.clip(result, 1e-9, 1 - 1e-9)


def _divergence(truth: Values, confidences: Values) -> Values:
    """Return the divergence of each truth from the nearest tolerated accuracy."""
    near = _nearest(truth, confidences)
    return scipy.special.rel_entr(truth, near) + scipy.special.rel_entr(1 - truth, 1 - near)


def _nearest(truth: Values, confidences: Values) -> Values:
    tolerated = np.clip(truth, confidences - _TOLERANCE, confidences + _TOLERANCE)
    return np.clip(tolerated, 1e-9, 1 - 1e-9)


def _stream(drift: Drift, length: int, seed: int, *, drifts: bool) -> tuple[Values, ...]:
    """Return confidences, correctness and true accuracies, (N,) each, before or after the onset."""
    rng = np.random.default_rng([seed, drifts])
    rows = rng.integers(len(drift.confidences), size=length)
    truth = drift.accuracy(rows, np.arange(length) if drifts else np.full(length, -np.inf))
    return drift.confidences[rows], (rng.random(length) < truth).astype(np.float64), truth


def first_alarm(p: Values, y: Values, test: CalibrationTest | None = None) -> float:
    test = test or CalibrationTest(alpha=_ALPHA, tolerance=_TOLERANCE)
    for start in range(0, len(p), _CALL):
        test.update(p[start : start + _CALL], y[start : start + _CALL])
        if test.rejected_at is not None:
            return test.rejected_at
    return np.inf


class Start(NamedTuple):
    """The calibrated beginning of a stream, and the state of the test after it."""

    confidences: Values
    correct: Values
    state: dict[str, Any]


def start_streams(drift: Drift, onset: int, streams: int) -> list[Start]:
    """Return the calibrated beginnings of streams; all drifts of a classifier share them."""
    starts = []
    for seed in range(streams):
        p, y, _ = _stream(drift, onset, seed, drifts=False)
        test = CalibrationTest(alpha=_ALPHA, tolerance=_TOLERANCE)
        test.update(p, y)
        starts.append(Start(p, y, test.state()))
    return starts


def _oracle(p: Values, y: Values, truth: Values) -> float:
    near = _nearest(truth, p)
    gains = np.log(np.where(y == 1, truth / near, (1 - truth) / (1 - near)))
    reached = np.flatnonzero(np.cumsum(gains) >= -np.log(_ALPHA))
    return float(reached[0]) + 1 if len(reached) else np.inf


def _adwin(p: Values, y: Values) -> float:
    alarm = DETECTORS["ADWIN"](p, y)
    return np.inf if alarm is None else alarm


class Delays(NamedTuple):
    """Median labels from the onset to the alarm, of streams without an earlier alarm."""

    bound: float
    oracle: float
    ours: float
    adwin: float
    #: Streams with an alarm of the test before the onset.
    early: int


def measure(drift: Drift, starts: Sequence[Start], *, adwin: bool) -> Delays:
    """Run the detectors on the same streams."""
    bound = drift.bound()
    length, onset = int(_LENGTH * bound) + 200, len(starts[0].correct)
    alarms: dict[str, list[float]] = {"oracle": [], "ours": [], "adwin": []}
    for seed, start in enumerate(starts):
        p, y, truth = _stream(drift, length, seed, drifts=True)
        alarms["oracle"].append(_oracle(p, y, truth) + onset)
        test = CalibrationTest(alpha=_ALPHA, tolerance=_TOLERANCE)
        test.restore(start.state)
        alarms["ours"].append(test.rejected_at or first_alarm(p, y, test))
        if adwin:
            stream = np.concatenate([start.confidences, p]), np.concatenate([start.correct, y])
            alarms["adwin"].append(_adwin(*stream))
    medians = {name: _median(np.array(values), onset) for name, values in alarms.items()}
    return Delays(bound, **medians, early=int(np.sum(np.array(alarms["ours"]) <= onset)))


def _median(alarms: Values, onset: int) -> float:
    late = alarms[alarms > onset]
    return float(np.median(late)) - onset if len(late) else np.nan


#: Accuracy minus confidence of streams within the tolerance, by confidence and place in the stream.
NULLS: Mapping[str, float | str] = {
    "exactly right": 0.0,
    "2% too sure": -_TOLERANCE,
    "2% too unsure": _TOLERANCE,
    "2%, turns at .85": "confidence",
    "2%, turns at label 5,137": "time",
}


def false_alarms(classes: int, null: str, streams: int) -> int:
    """Return how many streams of 20,000 labels within the tolerance raise an alarm."""
    c = drifts(classes)["local"].confidences
    alarms = 0
    for seed in range(streams):
        rng = np.random.default_rng([seed, classes, 11])
        p = c[rng.integers(len(c), size=_NULL_LABELS)]
        off = NULLS[null]
        if off == "confidence":
            off = np.where(p > 0.85, -_TOLERANCE, _TOLERANCE)
        elif off == "time":
            off = np.where(np.arange(len(p)) < _ONSETS[1], _TOLERANCE, -_TOLERANCE)
        y = (rng.random(len(p)) < np.clip(p + off, 0, 1)).astype(np.float64)
        alarms += np.isfinite(first_alarm(p, y))
    return alarms


def _interval(hits: int, draws: int) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) 95% interval of a share."""
    low = scipy.special.betaincinv(hits, draws - hits + 1, 0.025) if hits else 0.0
    high = scipy.special.betaincinv(hits + 1, draws - hits, 0.975) if hits < draws else 1.0
    return float(low), float(high)


def main() -> None:
    """Print the tables; the exit status is 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=200, help="of each kind")
    parser.add_argument("--classes", type=int, action="append", choices=(2, 10, 100))
    parser.add_argument("--onset", type=int, action="append", help="0 and 5,137 by default")
    parser.add_argument("--no-adwin", action="store_true")
    parser.add_argument("--no-nulls", action="store_true")
    parser.add_argument("--others", action="store_true", help="drifts not used for the settings")
    args = parser.parse_args()
    adwin = not args.no_adwin and available()
    met = True
    print(f"{args.streams} streams of each kind; tolerance {_TOLERANCE:.0%}, alpha {_ALPHA:.0%}")
    for classes in args.classes or (2, 10, 100):
        print(f"\n{classes} classes: median labels from the onset to the alarm")
        heads = ("bound", "oracle", "ours", "/ bound", "ADWIN", "early")
        print(f"{'drift':18}{'onset':>6}" + "".join(f"{head:>9}" for head in heads))
        population = (other_drifts if args.others else drifts)(classes)
        starts = {
            onset: start_streams(next(iter(population.values())), onset, args.streams)
            for onset in args.onset or _ONSETS
        }
        for name, drift in population.items():
            if drift.bound() > _MAX_BOUND:
                print(f"{name:18}{'':6}{drift.bound():9,.0f}  not measured")
                continue
            for onset in starts:
                delays = measure(drift, starts[onset], adwin=adwin and onset > 0)
                ratio = delays.ours / delays.bound
                met &= ratio <= _GOAL
                print(
                    f"{name:18}{onset:>6,}{delays.bound:9,.0f}{delays.oracle:9,.0f}"
                    f"{delays.ours:9,.0f}{ratio:9.2f}{delays.adwin:9,.0f}{delays.early:>9}",
                    flush=True,
                )
    for classes in () if args.no_nulls else args.classes or (2, 10, 100):
        print(f"\n{classes} classes: false alarms in {_NULL_LABELS:,} labels, exact 95% interval")
        for null in NULLS:
            alarms = false_alarms(classes, null, args.streams)
            low, high = _interval(alarms, args.streams)
            met &= low <= _ALPHA
            print(f"{null:26}{alarms:>4} of {args.streams} ({low:.1%} to {high:.1%})", flush=True)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
