"""The table of edges: each kind of hard input, for every name in METRICS.

`test_edges.py` has the arithmetic behind it. Where a metric has a row-by-row definition, the
answer is that; everywhere it is finite, inside its interval and of no more than its range.
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

every = pytest.mark.parametrize("name", METRICS)

Case = tuple[NDArray[np.float64], NDArray[np.int64]]


def pairs(confidences: list[float], labels: list[int]) -> Case:
    p = np.array(confidences)
    return np.stack([p, 1 - p], axis=1), np.array(labels)


#: Rows that are answered.
ANSWERED: dict[str, Case] = {
    "on edges of bins": pairs([k / 15 for k in range(16)], [k % 2 for k in range(16)]),
    "0 and 1": pairs([0.0, 1.0, 1.0, 0.0], [0, 0, 1, 1]),
    "ties of rows": pairs([0.8] * 6 + [0.6] * 5, [0, 1] * 5 + [0]),
    "ties of classes": (np.full((9, 3), 1 / 3), np.arange(9) % 3),
    "fewer rows than bins": pairs([0.55, 0.65, 0.95], [0, 1, 0]),
    "one row": pairs([0.7], [1]),
    "one label in all rows": pairs([0.9, 0.8, 0.3, 0.6], [0] * 4),
}
#: Probabilities that are refused, with what the error says.
REFUSED = {
    "no rows": (np.ones((0, 3)) / 3, "found no rows"),
    "one class": (np.ones((3, 1)), "class"),
    "NaN": (np.array([[0.5, 0.5], [np.nan, 1.0], [0.5, 0.5]]), r"probabilities\[1\]\[0\].*nan"),
    "a sum that is not 1": (np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.6]]), r"\[2\].*sum of 1.1"),
    "logits": (np.array([[2.0, -1.0], [0.0, 1.0], [0.0, 1.0]]), "are these logits"),
}


@every
@pytest.mark.parametrize("case", ANSWERED)
def test_edges_have_an_answer(name: str, case: str) -> None:
    p, y = ANSWERED[case]
    (one,) = evaluate(y, probabilities=p, metrics=[name], level=0.95).values()
    (alone,) = evaluate(y, probabilities=p, metrics=[name]).values()
    assert one.value == pytest.approx(alone.value, rel=1e-13)
    assert math.isfinite(one.value)
    assert one.value >= 0
    if one.low is not None:
        assert one.low <= one.value <= one.high < math.inf
    if one.floor is not None:
        assert 0 <= one.floor < math.inf
    if name in DEFINITIONS:
        expected = DEFINITIONS[name](p.tolist(), y.tolist(), 15)
        assert one.value == pytest.approx(expected, rel=1e-12, abs=1e-12)


@every
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused(name: str, case: str) -> None:
    p, says = REFUSED[case]
    with pytest.raises(InputError, match=says):
        evaluate(np.zeros(len(p), int), probabilities=p, metrics=[name])


@every
def test_nan_logits_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"logits\[0\]\[1\]: found NaN"):
        evaluate([0], logits=[[0.0, math.nan]], metrics=[name])


@every
def test_a_docstring_says_range_bias_ties_and_source(name: str) -> None:
    """Of the class itself, or in the one that it refers to."""
    text = " ".join(str(type(METRICS[name](15)).__doc__).split())
    assert "range [" in text
    assert any(word in text for word in ("iased", "bias")), "bias"
    assert any(word in text for word in ("ies", " tie", "order does not matter")), "ties"
    assert "ource" in text or name == "accuracy", "source"
