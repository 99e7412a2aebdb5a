"""Speed of the call that users make: `recalib.fit` against the fit of other libraries.

`benchmarks.fitting` and `benchmarks.linear` compare the solvers. Here ours checks its input, fits,
and writes the card; the others do what they offer. The times are wall times of warm calls, in
turns, since some libraries use several threads.

    python -m benchmarks.calls
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import recalib
from benchmarks.fitting import against, rows_like
from benchmarks.peers import Fit, Fitted, FixedLogits, Labels, Rows, peers_of
from benchmarks.timing import Goal
from recalib.ops import NumpyOps

__all__ = ["run"]

#: Options with which our objective is that of the peer.
_STRUCTURED = {"rows_per_parameter": 0.0}
_PUBLISHED = {"diagonal": 0.0, "strength": 100.0, "intercept": 0.1}


def run() -> Iterator[Goal]:
    """Measure temperature scaling, isotonic regression and maps with many parameters."""
    small, large = rows_like(5_000, 10), rows_like(25_000, 1_000)
    sklearn = {"scikit-learn": peers_of("temperature")["scikit-learn"]}
    yield from against("temperature", _ours("temperature"), sklearn, small, 5, 1)
    yield from against("temperature", _ours("temperature"), sklearn, large, 2, 8)
    # Each library smooths isotonic regression in its way, so only times are compared.
    isotonic = {"scikit-learn": _sklearn_isotonic, "netcal": _netcal_isotonic}
    ours = _ours("isotonic", target="one_vs_rest")
    for goal in against("isotonic", ours, isotonic, rows_like(100_000, 10), 3, 1):
        if "over ours" in goal.what:
            yield goal
    wide = rows_like(5_000, 100, per_class=True)
    for name, options in (
        ("vector", {}),
        ("structured_matrix", _STRUCTURED),
        ("dirichlet", _PUBLISHED),
    ):
        yield from against(name, _ours(name, **options), peers_of(name), wide, 2, 5)


def _ours(name: str, **options: Any) -> Fit:
    def fit(logits: Rows, labels: Labels) -> Fitted:
        calibrator = recalib.fit(logits, labels, name, **options)

        def penalty() -> float:
            if name != "dirichlet":  # the only map whose peer reports its penalty
                return 0.0
            return float(calibrator.map.penalty(NumpyOps(), calibrator.parameters, len(labels)))

        return Fitted(lambda: np.asarray(calibrator.predict(logits)), penalty)

    return fit


def _sklearn_isotonic(logits: Rows, labels: Labels) -> Fitted:
    frozen = FrozenEstimator(FixedLogits().fit(logits, labels))
    fitted = CalibratedClassifierCV(frozen, method="isotonic").fit(logits, labels)
    return Fitted(lambda: _positive(np.asarray(fitted.predict_proba(logits))))


def _netcal_isotonic(logits: Rows, labels: Labels) -> Fitted:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    isotonic = import_module("netcal.binning").IsotonicRegression()
    isotonic.fit(probabilities, labels)
    return Fitted(lambda: _positive(np.asarray(isotonic.transform(probabilities))))


def _positive(probabilities: Rows) -> Rows:
    """Isotonic regression may give an observed label the probability 0."""
    return np.maximum(probabilities, 1e-12)


if __name__ == "__main__":
    for goal in run():
        print(goal, flush=True)
