"""Edge cases of input, for every member of METRICS.

A metric with an independent definition must equal it. Every metric must be finite and inside its
interval. `test_edges.py` checks single metrics in detail.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from recalib.errors import InputError
from recalib.metrics import METRICS
from recalib.metrics.evaluate import evaluate
from tests.metrics.definitions import DEFINITIONS
from tests.metrics.rows import defined

Case = tuple[NDArray[np.float64], NDArray[np.int64]]


def pairs(confidences: list[float], labels: list[int]) -> Case:
    p = np.array(confidences)
    return np.stack([p, 1 - p], axis=1), np.array(labels)


#: Legal probabilities and labels.
ACCEPTED: dict[str, Case] = {
    "on edges of bins": pairs([k / 15 for k in range(16)], [k % 2 for k in range(16)]),
    "0 and 1": pairs([0.0, 1.0, 1.0, 0.0], [0, 0, 1, 1]),
    "ties of rows": pairs([0.8] * 6 + [0.6] * 5, [0, 1] * 5 + [0]),
    "ties of classes": (np.full((9, 3), 1 / 3), np.arange(9) % 3),
    "fewer rows than bins": pairs([0.55, 0.65, 0.95], [0, 1, 0]),
    "one row": pairs([0.7], [1]),
    "one label in all rows": pairs([0.9, 0.8, 0.3, 0.6], [0] * 4),
}
#: Illegal probabilities, each with the error message.
REJECTED = {
    "no rows": (np.ones((0, 3)) / 3, "found no rows"),
    "no class": (np.ones((3, 0)), "class"),
    "NaN": (np.array([[0.5, 0.5], [np.nan, 1.0], [0.5, 0.5]]), r"probabilities\[1\]\[0\].*nan"),
    "a sum that is not 1": (np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.6]]), r"\[2\].*sum of 1.1"),
    "logits": (np.array([[2.0, -1.0], [0.0, 1.0], [0.0, 1.0]]), "are these logits"),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_edge_cases_have_finite_metrics(case: str) -> None:
    p, y = ACCEPTED[case]
    names = defined(p.shape[1])
    values = evaluate(y, probabilities=p, metrics=names)
    for name, estimate in evaluate(y, probabilities=p, metrics=names, level=0.95).items():
        assert estimate.value == pytest.approx(values[name].value, rel=1e-13), name
        assert math.isfinite(estimate.value), name
        assert estimate.value >= 0, name
        if estimate.low is not None:
            assert estimate.low <= estimate.value <= estimate.high < math.inf, name
        if estimate.floor is not None:
            assert 0 <= estimate.floor < math.inf, name
        if name in DEFINITIONS:
            expected = DEFINITIONS[name](p.tolist(), y.tolist(), 15)
            assert estimate.value == pytest.approx(expected, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize("case", REJECTED)
def test_invalid_probabilities_are_rejected(case: str) -> None:
    p, message = REJECTED[case]
    for name in defined(p.shape[1]):
        with pytest.raises(InputError, match=message):
            evaluate(np.zeros(len(p), int), probabilities=p, metrics=[name])


def test_nan_logits_are_rejected() -> None:
    for name in defined(2):
        with pytest.raises(InputError, match=r"logits\[0\]\[1\]: found NaN"):
            evaluate([0], logits=[[0.0, math.nan]], metrics=[name])


@pytest.mark.parametrize("name", METRICS)
def test_docstring_states_range_bias_ties_and_source(name: str) -> None:
    """The text may also refer to the docstring of another metric."""
    text = " ".join(str(METRICS[name].__doc__).split())
    assert "range [" in text
    assert any(word in text for word in ("iased", "bias")), "bias"
    assert any(word in text for word in ("ies", " tie", "order does not matter")), "ties"
    assert "ource" in text or name == "accuracy", "source"
