"""`python -m benchmarks.monitoring.mixtures`: a tenth of the rows becomes 30 points too sure.

Which rows is not known, so at each confidence accuracy falls by 3 points: one more than a tolerance
of 2%. The CUSUM of p − y with an allowance has the threshold that 5% of simulated streams reach:
calibrated ones, or also those that are 2 points too sure throughout, which the tolerance permits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.monitoring import streams
from benchmarks.monitoring.streams import LABELS, ONSET, TOLERANCE, Rows, Values
from benchmarks.monitoring.unlabelled import interval
from recalib.drift import CalibrationTest

_SHARE, _OFF, _ALPHA = 0.1, 0.3, 0.05
Alarm = Callable[[Values, Values], int | None]


def _too_sure(seed: int, off: float) -> Rows:
    rng = np.random.default_rng([seed, 3])
    p = streams.draw_confidences(rng, LABELS)
    return p, streams.draw_outcomes(rng, p - off)


def _mixture(seed: int) -> tuple[Values, Values, NDArray[np.bool_]]:
    """Return confidences, correctness, and which rows are of the tenth, (N,) each."""
    rng = np.random.default_rng([seed, 4])
    p, is_part = streams.draw_confidences(rng, LABELS), rng.random(LABELS) < _SHARE
    truth = p - _OFF * (is_part & (np.arange(LABELS) >= ONSET))
    return p, streams.draw_outcomes(rng, truth), is_part


def _test(tolerance: float, alpha: float = _ALPHA) -> Alarm:
    def alarm(p: Values, y: Values) -> int | None:
        test = CalibrationTest(alpha=alpha, tolerance=tolerance)
        test.update(p, y)
        return test.rejected_at

    return alarm


def _cusum(p: Values, y: Values, allowance: float) -> Values:
    """Return the larger of both one-sided sums after each label, (N,)."""
    sums = np.cumsum(np.stack([p - y, y - p]) - allowance, axis=1)
    lowest = np.minimum.accumulate(np.minimum(sums, 0), axis=1)
    larger: Values = np.max(sums - lowest, axis=0)
    return larger


def _tuned(allowance: float, nulls: Sequence[Sequence[Rows]]) -> Alarm:
    """Return the CUSUM that alarms in at most 5% of the streams of each null."""
    highest = [[_cusum(*rows, allowance).max() for rows in streams] for streams in nulls]
    threshold = max(np.quantile(values, 1 - _ALPHA) for values in highest)

    def alarm(p: Values, y: Values) -> int | None:
        reached = np.flatnonzero(_cusum(p, y, allowance) > threshold)
        return int(reached[0]) + 1 if len(reached) else None

    return alarm


def main() -> None:
    """Print false alarms, the mixtures that are found, and the median delay."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100, help="of each kind")
    number, offs = parser.parse_args().streams, (0.0, TOLERANCE)
    nulls = [[_too_sure(seed, off) for seed in range(10_000, 10_200)] for off in offs]
    alarms = {f"recalib, tolerance {value:.0%}": _test(value) for value in (0.02, 0.01, 0.0)}
    for allowance in (0.0, 0.01, 0.02, 0.03):
        alarms[f"CUSUM, allowance {allowance:.0%}"] = _tuned(allowance, nulls[:1])
        alarms[f"CUSUM, allowance {allowance:.0%}, holds 2%"] = _tuned(allowance, nulls)
    print(f"alarms in {number} streams each: calibrated, 2% too sure, the mixture; median delay")
    mixtures = [_mixture(seed) for seed in range(number)]
    for name, alarm in alarms.items():
        false = [
            sum(alarm(*_too_sure(seed, off)) is not None for seed in range(number)) for off in offs
        ]
        found = [at for p, y, _ in mixtures if (at := alarm(p, y)) is not None and at > ONSET]
        _print(name, [*false, len(found)], [at - ONSET for at in found], number)
    segment, delays = _test(0.02, _ALPHA / 4), []
    for p, y, is_part in mixtures:
        at = segment(p[is_part], y[is_part])
        if at is not None and (row := np.flatnonzero(is_part)[at - 1]) >= ONSET:
            delays.append(int(row) + 1 - ONSET)
    _print("the tenth as one of two segments", [None, None, len(delays)], delays, number)


def _print(name: str, hits: Sequence[int | None], delays: Sequence[int], streams: int) -> None:
    shares = "".join(f"{'' if k is None else interval(k, streams):>24}" for k in hits)
    delay = f"{np.median(delays):8,.0f}" if delays else "   never"
    print(f"{name:<33}{shares}{delay}")


if __name__ == "__main__":
    main()
