"""Speed of fitting maps that are linear in their parameters, relative to other libraries.

Structured maps use the objective of probmetrics (`rows_per_parameter` = 0), so that the optimum is
the same; its vector scaling has no penalty, ours has one of a hundredth of a row's weight.
Dirichlet calibration uses the published penalty, as torch-uncertainty does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.fitting import against, rows_like
from benchmarks.peers import Fit, Fitted, Labels, Rows, peers_of
from benchmarks.timing import Goal, best_of
from recalib.fitting.problem import Problem
from recalib.fitting.request import configure_pair
from recalib.fitting.solvers import solve
from recalib.ops import NumpyOps

_MAPS: dict[str, dict[str, Any]] = {
    "class_temperature": {},
    "vector": {},
    "structured_vector": {"rows_per_parameter": 0.0},
    "structured_matrix": {"rows_per_parameter": 0.0},
    # As published, like the peer.
    "dirichlet": {"diagonal": 0.0, "strength": 100.0, "intercept": 0.1},
}


def run() -> Iterator[Goal]:
    """Measure 5,000 x 10 against others, and Dirichlet calibration of 5,000 x 100 alone."""
    for name, options in _MAPS.items():
        data = rows_like(5_000, 10, per_class=True)
        is_structured = name.startswith("structured")
        yield from against(
            name, _ours(name, options), peers_of(name), data, 5, 1, both_ways=is_structured
        )
    large = rows_like(5_000, 100, per_class=True)
    fit = _ours("dirichlet", _MAPS["dirichlet"])
    yield Goal("dirichlet with ODIR, 5,000x100, seconds", best_of(lambda: fit(*large), 2), 5, True)


def _ours(name: str, options: dict[str, Any]) -> Fit:
    the_map, objective = configure_pair(name, "nll", options)
    ops = NumpyOps()

    def fit(logits: Rows, labels: Labels) -> Fitted:
        parameters = solve(Problem(the_map, objective, logits, labels)).parameters

        def probabilities() -> Rows:
            result: Rows = the_map.probabilities(ops, logits, parameters)
            return result

        def penalty() -> float:
            # The peers report their penalty for this map only.
            is_told = name == "dirichlet"
            return float(the_map.penalty(ops, parameters, len(labels))) if is_told else 0.0

        return Fitted(probabilities, penalty)

    return fit
