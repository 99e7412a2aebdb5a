"""The published digits of paper 003, by its protocol and on its logits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paper_tables import PUBLISHED, Split, by_protocol, load, percent
from recalib.ops import NumpyOps

pytestmark = pytest.mark.slow

MAPS = [
    "temperature",
    "ensemble_temperature",
    "parameterized_temperature",
    "class_temperature",
]


@pytest.fixture(scope="module")
def splits(real_data: Path) -> tuple[Split, Split]:
    return load(real_data)


def test_the_rows_are_those_of_the_paper(splits: tuple[Split, Split]) -> None:
    """Uncalibrated: 4.75 (93.56)."""
    test = splits[1]
    ece, accuracy = percent(NumpyOps().softmax(test.logits.astype("float64")), test.labels)
    assert (len(splits[0].labels), len(test.labels)) == (5_000, 10_000)
    assert (round(ece, 2), round(accuracy, 2)) == (4.75, 93.56)


@pytest.mark.parametrize("objective", ["nll", "classwise nd", "focal"])
@pytest.mark.parametrize("map", MAPS)
def test_the_published_digits(map: str, objective: str, splits: tuple[Split, Split]) -> None:
    """Within 0.03 points of ECE, the rounding of both and float32's last steps; the accuracy is
    a count of rows, and has to be the same."""
    ece, accuracy = by_protocol(map, objective, *splits)
    published_ece, published_accuracy = PUBLISHED[map, objective]
    assert ece == pytest.approx(published_ece, abs=0.03)
    assert round(accuracy, 2) == published_accuracy
