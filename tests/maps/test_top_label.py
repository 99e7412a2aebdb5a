"""Split and join of the predicted class's log-odds and the other classes' shares."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from recalib.maps.top_label import split_top_label, top_label_logits, top_label_probabilities
from recalib.ops import NumpyOps
from recalib.ops.onnx_ops import OnnxOps
from tests.maps.conftest import some_logits

OPS = NumpyOps()


def by_hand(logits: NDArray[np.float64], odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The prediction gets at least σ(odds) or the next class's value; other shares stay."""
    result = np.empty_like(logits)
    for row, z, g in zip(result, logits, odds[:, 0], strict=True):
        top = int(z.argmax())
        rest = np.delete(z, top)
        share = scipy.special.softmax(rest)
        g = max(g, scipy.special.logit(share.max() / (1 + share.max())))
        row[:] = np.insert(share * scipy.special.expit(-g), top, scipy.special.expit(g))
    return result


@pytest.mark.parametrize("classes", [3, 10, 1000])
def test_odds_and_shares_match_a_loop(classes: int) -> None:
    """`_MIN_MARGIN` raises some predictions by 1e-4 of their odds, hence the tolerance."""
    logits = some_logits(200, classes)
    parts = split_top_label(OPS, logits)
    rest = np.sort(logits, axis=1)[:, :-1]
    expected = logits.max(axis=1) - scipy.special.logsumexp(rest, axis=1)
    np.testing.assert_allclose(parts.odds[:, 0], expected, rtol=1e-12, atol=1e-12)
    odds = np.random.default_rng(0).normal(size=(200, 1)) * 3
    np.testing.assert_allclose(
        top_label_probabilities(OPS, parts, odds), by_hand(logits, odds), rtol=2e-4
    )
    above = np.abs(odds) + 0.01  # only the prediction can have these odds
    np.testing.assert_allclose(
        top_label_probabilities(OPS, parts, above), by_hand(logits, above), rtol=1e-10
    )


def test_equal_odds_do_not_change_probabilities() -> None:
    logits = some_logits(200, 10)
    parts = split_top_label(OPS, logits)
    result = top_label_probabilities(OPS, parts, parts.odds)
    np.testing.assert_allclose(result, scipy.special.softmax(logits, axis=1), rtol=2e-4)


@given(
    arrays(np.float64, (4, 5), elements=st.floats(-1e30, 1e30)),
    arrays(np.float64, (4, 1), elements=st.floats(-1e6, 1e6)),
)
def test_logits_and_probabilities_are_consistent(
    logits: NDArray[np.float64], odds: NDArray[np.float64]
) -> None:
    """For any logits: rows sum to one, and predictions stay the same; the first of equals wins.

    A logit of 1e30 has rounding errors of 1e14, but a difference of two has none under it.
    """
    parts = split_top_label(OPS, logits)
    result = top_label_probabilities(OPS, parts, odds)
    np.testing.assert_allclose(result.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(result.argmax(axis=1), logits.argmax(axis=1))
    small = np.abs(logits).max() < 1e3
    if small:
        np.testing.assert_allclose(
            OPS.softmax(top_label_logits(OPS, parts, odds)), result, rtol=1e-9, atol=1e-300
        )


@pytest.mark.parametrize("masked", [0, 3, 4])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_ties_masks_and_scales_match_onnxruntime(masked: int, scale: float) -> None:
    """In float32, down to a single unmasked class, which has probability 1."""
    logits = np.float32(scale) * np.array([[2, 2, 1, 0, -1], [-1, 0, 1, 2, 2]], np.float32)
    logits[0, 5 - masked :], logits[1, :masked] = -np.inf, -np.inf
    ops = OnnxOps()
    parts = split_top_label(ops, ops.input("logits"))
    graph = ops.model(top_label_probabilities(ops, parts, parts.odds * 0.0 - 1.0), classes=5)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    (result,) = session.run(None, {"logits": logits})
    wide = logits.astype(np.float64)
    expected = top_label_probabilities(OPS, split_top_label(OPS, wide), np.full((2, 1), -1.0))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(result.argmax(axis=1), [0, 4 if masked == 4 else 3])
    if masked == 4:
        np.testing.assert_array_equal(result, [[1, 0, 0, 0, 0], [0, 0, 0, 0, 1]])
