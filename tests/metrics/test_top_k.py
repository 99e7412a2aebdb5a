"""The calibration error of the sum of the k largest probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import recalib
from recalib.errors import InputError
from recalib.metrics import METRICS, Predictions
from recalib.metrics.ece import TopKError
from tests.metrics.definitions import top_k_ece


def _overconfident(rows: int = 2000, classes: int = 7) -> tuple[NDArray, NDArray]:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(rows, classes))
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


def test_error_of_one_class_is_that_of_the_top_label() -> None:
    """The value, the interval and the floor."""
    rows = Predictions.from_logits(*_overconfident())
    assert TopKError(k=1).measure(rows, level=0.95) == METRICS["ece"]().measure(rows, level=0.95)


def test_error_of_all_classes_is_0() -> None:
    rows = Predictions.from_logits(*_overconfident())
    assert TopKError(k=7).measure(rows).value == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_error_of_k_classes_equals_its_definition(k: int) -> None:
    rows = Predictions.from_logits(*_overconfident())
    expected = top_k_ece(rows.probabilities.tolist(), rows.labels.tolist(), 15, k)
    assert TopKError(k=k).measure(rows).value == pytest.approx(expected, rel=1e-12)
    assert expected > 0.01


def test_error_finds_overconfidence_and_not_calibrated_rows() -> None:
    logits, labels = _overconfident(20_000, 10)
    found = recalib.evaluate(labels, logits=logits, metrics=["top5_ece"], intervals=True)
    calibrated = recalib.evaluate(labels, logits=logits / 2, metrics=["top5_ece"], intervals=True)
    assert found["top5_ece"].low > found["top5_ece"].floor_high
    assert calibrated["top5_ece"].low <= calibrated["top5_ece"].floor


def test_error_of_few_classes_is_refused() -> None:
    with pytest.raises(InputError, match="not defined for 5 classes"):
        recalib.evaluate([0, 1], logits=np.eye(5)[:2], metrics=["top5_ece"])


@pytest.mark.parametrize("k", [0, -1, 2.5, "5"])
def test_number_of_classes_is_an_integer_from_1(k: Any) -> None:
    with pytest.raises(InputError, match=f"^k: found {k!r}; accepted: an integer from 1$"):
        TopKError(k=k)
