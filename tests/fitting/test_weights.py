"""Weight 2 equals two rows; weight 0 removes a row."""

from __future__ import annotations

import numpy as np
import pytest

from recalib.arrays import check_weights
from recalib.errors import InputError
from recalib.fitting.fit import configure_pair, fit
from recalib.fitting.problem import Problem
from recalib.fitting.solvers import solve
from recalib.maps import MAPS
from recalib.objectives import OBJECTIVES
from tests.fitting.conftest import draw

#: Every map, and every objective that has one minimum or is searched over all of its range.
PAIRS = [(name, "nll") for name in MAPS] + [
    (name, objective)
    for name in ("temperature", "class_temperature")
    for objective in OBJECTIVES
    if name == "temperature" or not OBJECTIVES[objective].top_label_only
]


@pytest.mark.parametrize(("name", "objective"), PAIRS)
def test_weight_two_equals_a_duplicate_row(name: str, objective: str) -> None:
    """Integer weights give the fit of repeated rows."""
    logits, labels = draw(400, 4, 2.5)
    # A bootstrap: as many rows as before, since penalties may depend on their number.
    drawn = np.random.default_rng(5).integers(0, len(labels), len(labels))
    times = np.bincount(drawn, minlength=len(labels))
    repeated = np.repeat(np.arange(len(labels)), times)
    the_map, the_objective = configure_pair(name, objective, {})
    weighted = solve(
        Problem(the_map, the_objective, logits, labels, check_weights(times, rows=len(labels)))
    )
    plain = solve(Problem(the_map, the_objective, logits[repeated], labels[repeated]))
    assert weighted.objective == pytest.approx(plain.objective, rel=1e-6)


def test_equal_weights_do_not_change_the_fit() -> None:
    logits, labels = draw(200, 3, 2.0)
    assert (
        fit(logits, labels, weights=np.full(200, 7.0)).parameters["temperature"]
        == fit(logits, labels).parameters["temperature"]
    )


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ([1.0, 2.0], "shape"),
        (np.ones((200, 1)), "shape"),
        (np.full(200, -1.0), "-1"),
        (np.full(200, np.nan), "nan"),
        (np.full(200, np.inf), "inf"),
        (np.zeros(200), "zeros"),
        (np.full(200, "a"), "dtype"),
    ],
)
def test_invalid_weights_are_rejected(weights: object, found: str) -> None:
    logits, labels = draw(200, 3, 2.0)
    with pytest.raises(InputError, match=f"weights.*{found}"):
        fit(logits, labels, weights=weights)


def test_enormous_weights_do_not_overflow() -> None:
    logits, labels = draw(200, 3, 2.0)
    weights = np.linspace(1, 2, 200)
    np.testing.assert_allclose(
        fit(logits, labels, weights=weights * 1e307).parameters["temperature"],
        fit(logits, labels, weights=weights).parameters["temperature"],
        rtol=1e-9,
    )
