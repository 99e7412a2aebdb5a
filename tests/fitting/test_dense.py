"""Fits, predictions and metrics of dense predictions equal those of their pixels as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import recalib
from recalib.core.inputs import counted_rows
from recalib.errors import InputError

K, VOID = 4, 255


@pytest.fixture(scope="module")
def images() -> tuple[Any, Any]:
    """Overconfident logits (N, K, H, W), and labels (N, H, W) with void pixels."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, K, (12, 6, 5))
    logits = 3 * rng.standard_normal((12, K, 6, 5)) + 3 * np.eye(K)[labels].transpose(0, 3, 1, 2)
    labels[:, 2] = VOID
    return logits, labels


def rows_of(logits: Any, labels: Any) -> tuple[Any, Any]:
    counts = labels != VOID
    return logits.transpose(0, 2, 3, 1)[counts], labels[counts]


@pytest.mark.parametrize("map_", ["temperature", "class_temperature"])
def test_fit_of_images_is_that_of_their_pixels(images: tuple[Any, Any], map_: str) -> None:
    calibrator = recalib.fit(*images, map=map_, ignore_index=VOID)
    rows = recalib.fit(*rows_of(*images), map=map_)
    assert calibrator.card.data.rows == 12 * 25
    for name, value in rows.parameters.items():
        np.testing.assert_array_equal(calibrator.parameters[name], value)
    probabilities = calibrator.predict(images[0])
    assert probabilities.shape == images[0].shape
    np.testing.assert_allclose(
        rows_of(probabilities, images[1])[0], rows.predict(rows_of(*images)[0]), rtol=1e-12
    )
    measured = calibrator.evaluate(*images, ignore_index=VOID, metrics=["nll"], intervals=True)
    again = recalib.evaluate(
        images[1], probabilities, ignore_index=VOID, metrics=["nll"], intervals=True
    )
    expected = rows.evaluate(*rows_of(*images), metrics=["nll"], intervals=True)
    assert measured["nll"].value == pytest.approx(expected["nll"].value)
    assert again["nll"].high == pytest.approx(expected["nll"].high)


def test_tensors_and_float32_keep_their_precision(images: tuple[Any, Any]) -> None:
    logits, labels = (torch.tensor(array) for array in images)
    calibrator = recalib.fit(logits, labels, ignore_index=VOID)
    assert calibrator.parameters["temperature"] == pytest.approx(
        recalib.fit(*images, ignore_index=VOID).parameters["temperature"]
    )
    single = calibrator.predict(logits.float())
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, calibrator.predict(logits), rtol=1e-4, atol=1e-6)


def test_ignored_rows_change_nothing(images: tuple[Any, Any]) -> None:
    """For (N, K) as well; weights belong to all rows."""
    logits, labels = rows_of(*images)
    more = np.concatenate([logits, logits[:9] + 7]), np.concatenate([labels, np.full(9, -100)])
    weights = np.random.default_rng(1).uniform(0.5, 2, len(more[1]))
    with_void = recalib.fit(*more, sample_weight=weights, ignore_index=-100)
    without = recalib.fit(logits, labels, sample_weight=weights[: len(labels)])
    assert with_void.parameters["temperature"] == without.parameters["temperature"]


def test_images_are_groups_of_pixels(images: tuple[Any, Any]) -> None:
    """In the folds of `auto`; named groups are of images, and a single image has none."""
    rows = counted_rows(*images, VOID, "logits")
    np.testing.assert_array_equal(rows.groups(None), np.repeat(np.arange(12), 25))
    patients = np.repeat(["a", "b", "c"], 4)
    np.testing.assert_array_equal(rows.groups(patients), np.repeat(patients, 25))
    assert counted_rows(images[0][:1], images[1][:1], VOID, "logits").groups(None) is None


@pytest.mark.slow
def test_auto_compares_images(images: tuple[Any, Any]) -> None:
    choice = recalib.fit(*images, map="auto", ignore_index=VOID).card.choice
    assert choice is not None
    pixels = recalib.fit(*rows_of(*images), map="auto", ignore_index=VOID).card.choice
    assert pixels is not None
    assert choice.rows == pixels.rows
    assert choice.winners[0].nll != pixels.winners[0].nll  # in folds of images


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.zeros((12, 5, 6), int)}, r"labels: found shape \(12, 5, 6\)"),
        ({"ignore_index": None}, "labels.*255.*0 to 3"),
        ({"labels": np.full((12, 6, 5), VOID)}, "labels: found no row"),
        ({"sample_weight": np.ones(12)}, r"sample_weight: found shape \(12,\)"),
        ({"map": "auto", "groups": np.zeros(3)}, r"groups: found shape \(3,\)"),
        ({"task": "multilabel", "map": "platt"}, "ignore_index.*multilabel"),
    ],
)
def test_invalid_input_names_its_field(
    images: tuple[Any, Any], changes: dict[str, Any], message: str
) -> None:
    arguments = {"logits": images[0], "labels": images[1], "ignore_index": VOID, **changes}
    with pytest.raises(InputError, match=message):
        recalib.fit(**arguments)
