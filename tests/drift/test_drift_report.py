"""What labels since the onset say: against other computations, invariants and extreme values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from recalib.drift.drift_report import (
    bin_names,
    describe_gap,
    direction_of,
    find_places,
    mean_interval,
    measure_gap,
)

_RNG = np.random.default_rng(0)
_P = _RNG.uniform(0.5, 1, 900)
_Y = (_RNG.random(900) < _P - 0.1).astype(np.float64)
_NO_GROUPS = np.zeros(900, np.int64)


def test_interval_is_that_of_a_normal_mean() -> None:
    values = _P - _Y
    expected = stats.norm.interval(0.995, values.mean(), values.std() / 30)
    assert mean_interval(values) == pytest.approx(expected)


def test_copies_in_groups_change_nothing() -> None:
    """Three copies of each row are one label; without groups, the interval is too narrow."""
    copies, groups = (np.tile(values, 3) for values in (_P, np.arange(900) + 1))
    gap = measure_gap(copies, np.tile(_Y, 3), groups)
    assert gap == pytest.approx(measure_gap(_P, _Y))
    narrow = measure_gap(copies, np.tile(_Y, 3))
    assert narrow.high - narrow.low == pytest.approx((gap.high - gap.low) / np.sqrt(3))


def test_complements_of_probabilities_and_outcomes_change_the_sign() -> None:
    gap, other = measure_gap(_P, _Y), measure_gap(1 - _P, 1 - _Y)
    assert (other.low, other.high) == pytest.approx((-gap.high, -gap.low))
    assert (direction_of(gap), direction_of(other)) == ("too_high", "too_low")
    assert describe_gap(gap, "top_label").startswith("too sure by ")
    assert describe_gap(other, "top_label").startswith("not sure enough by ")
    assert describe_gap(other, "positive_class").startswith("P(y = 1) is too low by ")
    size = describe_gap(gap, "top_label").removeprefix("too sure by ")
    assert describe_gap(other, "top_label").removeprefix("not sure enough by ") == size


@pytest.mark.parametrize("rows", [1, 20])
def test_few_labels_without_errors_show_little(rows: int) -> None:
    """Their residuals do not vary, but those of a calibrated version would."""
    gap = measure_gap(np.full(rows, 0.9), np.ones(rows))
    assert direction_of(gap) == "mixed"
    assert -1 <= gap.low < 0 < gap.high <= 1


def test_places_are_those_with_the_error() -> None:
    """The class that is wrong, and not a place with few labels."""
    classes = np.repeat([0, 1, 2], [450, 442, 8])
    y = np.where(classes == 0, _P, np.where(classes == 2, 0, _P - 0.3))
    places = find_places(_P, y, {"class": (classes, ["a", "b", "c"])}, _NO_GROUPS)
    assert [(place.kind, place.name, place.gap.labels) for place in places] == [("class", "b", 442)]
    assert places[0].gap.confidence - places[0].gap.accuracy == pytest.approx(0.3)


def test_names_of_bins() -> None:
    assert bin_names(np.array([0.5, 0.92])) == ["0 to 0.5", "0.5 to 0.92", "0.92 to 1"]
