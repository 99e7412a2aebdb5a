"""`python -m benchmarks.monitoring.stake`: what does a calibrated time cost the test?

A chance excess of errors looks like the start of a drift, and a bet on it loses. E is what is left
of the stake, 100% at the first label. An alarm needs 2,000%, so a drift that begins at 50% needs
ln 40 instead of ln 20 of evidence. Streams are exactly calibrated; the classifiers are those of
`benchmarks.monitoring.bound`.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from benchmarks.monitoring.bound import drifts
from recalib.drift import CalibrationTest

_LABELS = (5_137, 20_000, 60_000)
_CLASSES = (2, 10, 100)


def stakes(classes: int, streams: int, labels: tuple[int, ...] = _LABELS) -> NDArray[np.float64]:
    """Return E (streams, L) after these ascending numbers of labels."""
    confidences = drifts(classes)["local"].confidences
    evidence = np.empty((streams, len(labels)))
    for seed in range(streams):
        rng = np.random.default_rng([seed, classes, 23])
        test = CalibrationTest()
        for column, count in enumerate(labels):
            p = rng.choice(confidences, size=count - test.labels)
            test.update(p, rng.random(len(p)) < p)
            evidence[seed, column] = np.exp(test.log_evidence)
    return evidence


def main() -> None:
    """Print quantiles of E."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=100, help="of each kind")
    streams = parser.parse_args().streams
    print(f"{streams} calibrated streams of each kind: the stake that is left")
    print(f"{'':12}{'labels':>8}{'median':>9}{'5% have at most':>20}")
    for classes in _CLASSES:
        for count, values in zip(_LABELS, stakes(classes, streams).T, strict=True):
            low, median = np.quantile(values, [0.05, 0.5])
            print(f"{classes:4} classes{count:>8,}{median:9.0%}{low:20.0%}", flush=True)


if __name__ == "__main__":
    main()
