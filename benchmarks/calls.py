"""Speed of the call that users make: `recalib.fit` against the fit of other libraries.

Ours checks its input, fits, and writes the card; the others do what they offer. The times are
processor times of warm calls, in turns, with one thread of BLAS and torch: other programs on the
machine and threads that wait do not count.

The optimum is the same: structured maps have the objective of probmetrics (`rows_per_parameter` of
0), whose vector scaling has no penalty, where ours has one of a hundredth of a row's weight.
Dirichlet calibration has the published penalty, as torch-uncertainty does.

    python -m benchmarks.calls [MAP ...]

MAP is `isotonic`, `venn_abers`, or a map of logits that a peer has; by default all. A call of
`venn_abers` also gives the probabilities and intervals of the rows.
`measured` stands for temperature scaling with `measure=True`, over the same call without it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import scipy.special
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import recalib
from benchmarks.fitting import against, rows_like
from benchmarks.peers import Fit, Fitted, FixedLogits, Labels, Rows, peers_of
from benchmarks.timing import Goal, interleaved
from recalib.core.blas_threads import one_blas_thread
from recalib.ops import NumpyOps

#: Options for the objective of the peer.
_OPTIONS: dict[str, dict[str, Any]] = {
    "structured_vector": {"rows_per_parameter": 0.0},
    "structured_matrix": {"rows_per_parameter": 0.0},
    "dirichlet": {"diagonal": 0.0, "strength": 100.0, "intercept": 0.1},
}
#: Of maps of logits: rows, classes, runs, and the least ratio of times.
_SIZES = {
    "temperature": ((5_000, 10, 5, 1), (25_000, 1_000, 2, 8)),
    "class_temperature": ((5_000, 10, 5, 1),),
    "vector": ((5_000, 100, 3, 5),),
    "structured_vector": ((5_000, 10, 5, 1),),
    "structured_matrix": ((5_000, 100, 3, 5),),
    "dirichlet": ((5_000, 100, 3, 5),),
}
_FAST = ("scikit-learn", "probmetrics")
_NAMES = (*_SIZES, "isotonic", "venn_abers", "measured")


def run(*maps: str) -> Iterator[Goal]:
    """Measure some maps, or all, and calls with metrics."""
    import torch

    torch.set_num_threads(1)
    with one_blas_thread():
        for name in maps or _NAMES:
            yield from _measured() if name == "measured" else _goals(name)


def _goals(name: str) -> Iterator[Goal]:
    if name == "isotonic":
        # Each library smooths isotonic regression in its way, so only times are compared.
        fits = {"scikit-learn": _sklearn_isotonic, "netcal": _netcal_isotonic}
        peers = {library: fits[library] for library in peers_of("temperature") if library in fits}
        ours = _ours(name, target="one_vs_rest")
        for goal in against(name, ours, peers, rows_like(100_000, 10), 5, 1):
            if "over ours" in goal.what:
                yield goal
    elif name == "venn_abers":
        data = rows_like(100_000, 2)
        yield from against(name, _venn_abers, peers_of(name), data, 3, 1)
        seconds = min(interleaved({"": partial(_venn_abers, *data)}, 3, time.process_time)[""])
        yield Goal("  seconds of ours", seconds, 1, True)
    else:
        ours, peers = _ours(name, **_OPTIONS.get(name, {})), peers_of(name)
        for rows, classes, times, limit in _SIZES[name]:
            if classes == 1_000:  # the others take minutes
                peers = {library: peers[library] for library in _FAST if library in peers}
            data = rows_like(rows, classes, per_class=name != "temperature")
            yield from against(name, ours, peers, data, times, limit)


def _measured() -> Iterator[Goal]:
    """Compare a call that measures with one that only fits: what the command line always does."""
    for rows, classes, times, limit in ((5_000, 10, 9, 5), (25_000, 1_000, 3, 2)):
        data = rows_like(rows, classes)
        calls = {
            "fit": partial(recalib.fit, *data),
            "measured": partial(recalib.fit, *data, measure=True),
        }
        interleaved(calls, 1)  # the first run loads modules
        seconds = interleaved(calls, times, time.process_time)
        fit, measured = (min(seconds[name]) for name in calls)
        title = f"temperature, {rows:,}x{classes}: time with measure=True over that without"
        detail = f"; {measured * 1e3:.0f} ms against {fit * 1e3:.1f}"
        yield Goal(title, measured / fit, limit, True, detail)


def _ours(name: str, **options: Any) -> Fit:
    def fit(logits: Rows, labels: Labels) -> Fitted:
        calibrator = recalib.fit(logits, labels, name, **options)

        def penalty() -> float:
            if name != "dirichlet":  # the only map whose peer reports its penalty
                return 0.0
            return float(calibrator.map.penalty(NumpyOps(), calibrator.parameters, len(labels)))

        return Fitted(lambda: np.asarray(calibrator.predict(logits)), penalty)

    return fit


def _venn_abers(logits: Rows, labels: Labels) -> Fitted:
    calibrator = recalib.fit(logits, labels, "venn_abers")
    calibrator.predict_interval(logits)
    p = calibrator.predict_float64(logits)
    return Fitted(lambda: p)


def _sklearn_isotonic(logits: Rows, labels: Labels) -> Fitted:
    frozen = FrozenEstimator(FixedLogits().fit(logits, labels))
    fitted = CalibratedClassifierCV(frozen, method="isotonic").fit(logits, labels)
    return Fitted(lambda: _positive(np.asarray(fitted.predict_proba(logits))))


def _netcal_isotonic(logits: Rows, labels: Labels) -> Fitted:
    probabilities = scipy.special.softmax(logits, axis=1)
    isotonic = import_module("netcal.binning").IsotonicRegression()
    isotonic.fit(probabilities, labels)
    return Fitted(lambda: _positive(np.asarray(isotonic.transform(probabilities))))


def _positive(probabilities: Rows) -> Rows:
    """Isotonic regression may give an observed label the probability 0."""
    return np.maximum(probabilities, 1e-12)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("maps", nargs="*", metavar="MAP", help=", ".join(_NAMES))
    arguments = parser.parse_args()
    if unknown := set(arguments.maps) - set(_NAMES):
        parser.error(f"no call {', '.join(sorted(unknown))}; there are {', '.join(_NAMES)}")
    for goal in run(*arguments.maps):
        print(goal, flush=True)
