"""Rows of a group stay together in the cross-validation of `auto`, and count as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recalib
from recalib.errors import InputError
from recalib.fitting.cross_validation import mean_and_standard_error, random_folds
from recalib.fitting.fit import fit
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(150, 3, 2.0)


def test_a_group_is_in_one_fold() -> None:
    groups = np.random.default_rng(0).integers(0, 47, 500)
    folds = random_folds(500, groups)
    assert all(len(set(folds[groups == group])) == 1 for group in range(47))
    counts = np.bincount([folds[groups == group][0] for group in range(47)])
    assert len(counts) == folds.max() + 1 >= 5
    assert np.ptp(counts) <= 1
    assert random_folds(6, np.array([0, 0, 0, 1, 2, 2])).max() == 2


def test_standard_error_of_repeated_rows_is_that_of_the_rows() -> None:
    rng = np.random.default_rng(1)
    values, weights = rng.normal(size=80), rng.uniform(0.5, 2, 80)
    repeated, groups = np.repeat(values, 5), np.repeat(np.arange(80), 5)
    expected = mean_and_standard_error(values, weights)
    result = mean_and_standard_error(repeated, np.repeat(weights, 5), groups)
    assert result == pytest.approx(expected)
    assert mean_and_standard_error(values, None, np.arange(80)) == mean_and_standard_error(values)


@pytest.mark.slow
def test_copies_of_rows_do_not_prefer_a_larger_map() -> None:
    """Copies in both the fit and the held-out rows would reward a map that fits noise."""
    logits, labels = np.repeat(LOGITS, 10, axis=0), np.repeat(LABELS, 10)
    groups = np.repeat([f"row {i}" for i in range(150)], 10)
    misled = fit(logits, labels, "auto")
    together = fit(logits, labels, "auto", groups=groups)
    assert misled.card.map != "temperature"
    assert together.card.map == "temperature"
    alone = fit(LOGITS, LABELS, "auto")
    widths = []
    for calibrator in (misled, together, alone):
        choice = calibrator.card.choice
        assert choice is not None
        (nll,) = (c.nll for c in choice.candidates if c.map == "temperature")
        assert nll is not None
        widths.append(nll.high - nll.low)  # type: ignore[operator]
    assert widths[1] == pytest.approx(widths[2], rel=0.1)
    assert widths[0] < widths[1] / 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"map": "auto", "groups": [1, 2]}, r"groups: found shape \(2,\)"),
        ({"map": "auto", "groups": [1] * 150}, "groups: found 1 group"),
        ({"map": "vector", "groups": range(150)}, "groups: found map vector; accepted: map auto"),
    ],
)
def test_invalid_groups_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        recalib.fit(LOGITS, LABELS, **options)
