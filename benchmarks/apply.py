"""Speed of maps, relative to temperature scaling and to a lower bound for their formula.

Graphs run on one thread, as in each process of a server, and are charged with that thread's
processor time, so other programs on the machine have little effect. Only the comparison with a
memory copy uses wall time, on all cores. Parameters are random, not fitted: the cost of a graph
does not depend on them, unless a weight of `ensemble_temperature` is 0.

The goal: a map takes at most three times as long as `temperature`. If its formula makes that
impossible, its lower bound is measured too: the operations that the formula requires.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import recalib
from benchmarks.timing import Goal, interleaved
from recalib.calibrator import Calibrator
from recalib.core.card import Card, DataSummary, FitSummary
from recalib.core.options import options_of
from recalib.fitting import fit
from recalib.maps import MAPS, Map
from recalib.maps.histogram_binning import HistogramBinning
from recalib.maps.isotonic import Isotonic
from recalib.ops.base import Array
from recalib.ops.onnx_ops import OnnxOps
from tests.maps.conftest import some_logits, some_parameters

_ROWS, _CLASSES = 10_000, 1000
#: Repetitions for maps with a lower bound, which are slow, and for the others, whose ratios are
#: closer to 3.
_ROUNDS, _MORE_ROUNDS = 7, 25


@dataclass(frozen=True)
class Floor:
    """Operations that a map needs besides a temperature, and the largest allowed ratio to them."""

    reason: str
    formula: Callable[[OnnxOps, Array], Array]
    limit: float


def _largest(count: int) -> Callable[[OnnxOps, Array], Array]:
    return lambda ops, z: ops.softmax(z / ops.max(ops.top_k(z, count)))


def _product(ops: OnnxOps, z: Array) -> Array:
    return ops.softmax(ops.matmul(z, ops.constant(np.eye(_CLASSES))))


def _three_softmaxes(ops: OnnxOps, z: Array) -> Array:
    return ops.softmax(z / 2.0) + ops.softmax(z) + ops.softmax(z / 1e30)


def _odds(ops: OnnxOps, z: Array) -> Array:
    log_p = ops.log_softmax(z / 2.0)
    return log_p - ops.log(1.0 - ops.exp(log_p))


def _shares_of_odds(ops: OnnxOps, z: Array) -> Array:
    q = ops.exp(_odds(ops, z))
    return q / ops.sum(q)


def _looked_up(cells: int, gathers: int) -> Callable[[OnnxOps, Array], Array]:
    """Return the sequential gathers that a table for each class needs."""

    def formula(ops: OnnxOps, z: Array) -> Array:
        table = ops.constant(np.tile(np.arange(float(cells)), (_CLASSES, 1)))
        scores = ops.relu(_odds(ops, z) * 0.0)
        for _ in range(gathers):
            scores = ops.gather(table, scores)
        return ops.softmax(scores)

    return formula


_MATRIX = Floor("one product with a K x K matrix", _product, 1.3)
_SORTED = "the largest ten or so of each row, by TopK"
_LOGARITHMS = "log p, log (1 - p) and one power of each number"
_SEARCH = "a logarithm of each number, and a gather for each halving of its table"
_FLOORS = {
    "parameterized_temperature": Floor(_SORTED, _largest(10), 1.3),
    "intra_order_preserving": Floor(_SORTED, _largest(11), 1.5),
    "ensemble_temperature": Floor("a plain sum of three softmaxes", _three_softmaxes, 1.5),
    "matrix": _MATRIX,
    "dirichlet": _MATRIX,
    "structured_matrix": _MATRIX,
    "beta": Floor(_LOGARITHMS, _shares_of_odds, 2.0),
    "histogram_binning one_vs_rest": Floor(_SEARCH, _looked_up(16, 4 + 1), 2.5),
    "isotonic one_vs_rest": Floor(_SEARCH, _looked_up(65, 6 + 4), 2.5),
}


def run() -> Iterator[Goal]:
    """Measure onnxruntime on 10,000 x 1000 float32, and on one row of 10 classes."""
    logits = some_logits(_ROWS, _CLASSES, dtype=np.float32)
    single = _calibrator(MAPS["temperature"]())
    yield _over_copy(partial(single.session.run, None, {"logits": logits}), logits)
    temperature = _runner(single.to_onnx(), logits)
    members = {name: member() for name, member in MAPS.items() if name != "temperature"}
    members["histogram_binning one_vs_rest"] = HistogramBinning(target="one_vs_rest")
    members["isotonic one_vs_rest"] = Isotonic(target="one_vs_rest")
    for name, the_map in members.items():
        yield _against(name, the_map, temperature, logits)
    yield _one_row()


def _over_copy(temperature: Callable[[], object], logits: NDArray[np.float32]) -> Goal:
    seconds = interleaved({"copy": logits.copy, "map": temperature}, _MORE_ROUNDS)
    ratio = min(seconds["map"]) / min(seconds["copy"])
    return Goal(f"apply temperature, {_ROWS:,}x{_CLASSES}, over memory copy", ratio, 2.0, True)


def _against(
    name: str, the_map: Map, temperature: Callable[[], object], logits: NDArray[np.float32]
) -> Goal:
    acts = {"map": _runner(_calibrator(the_map).to_onnx(), logits), "temperature": temperature}
    floor = _FLOORS.get(name)
    if floor is not None:
        ops = OnnxOps()
        model = ops.model(floor.formula(ops, ops.input("logits")), classes=_CLASSES)
        acts["floor"] = _runner(model.SerializeToString(), logits)
    rounds = _MORE_ROUNDS if floor is None else _ROUNDS
    seconds = interleaved(acts, rounds, clock=time.thread_time)
    best = {name: min(times) for name, times in seconds.items()}
    ratio = best["map"] / best["temperature"]
    if floor is None:
        return Goal(f"apply {name}, over temperature", ratio, 3.0, True)
    lowest_ratio = best["floor"] / best["temperature"]
    detail = f"; over temperature {ratio:.1f}, the floor {lowest_ratio:.1f}: {floor.reason}"
    over = best["map"] / best["floor"]
    return Goal(f"apply {name}, over its floor", over, floor.limit, True, detail)


def _runner(graph: bytes, logits: NDArray[np.float32]) -> Callable[[], Any]:
    """Return a function that runs a graph on `logits` in the calling thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, {"logits": logits})


def _calibrator(the_map: Map) -> Calibrator:
    card = Card(
        map=the_map.name,
        objective="nll",
        options=options_of(the_map),
        classes=_CLASSES,
        library=recalib.__version__,
        created_at="",
        data=DataSummary(rows=0),
        fit=FitSummary(seconds=0, iterations=0, converged=True, objective=0),
    )
    return Calibrator(some_parameters(the_map, _CLASSES), card)


def _one_row() -> Goal:
    logits = some_logits(500, 10, dtype=np.float32)
    calibrator = fit(logits, np.random.default_rng(0).integers(0, 10, 500))
    act = _runner(calibrator.to_onnx(), logits[:1])

    def thousand() -> None:
        for _ in range(1000):
            act()

    microseconds = min(interleaved({"": thousand}, 9, clock=time.thread_time)[""]) * 1e3
    return Goal("one row of 10 classes, microseconds", microseconds, 15.0, True)
