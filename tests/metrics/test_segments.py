"""Metrics of each segment beside those of all rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

import recalib
from recalib.errors import InputError
from tests.draws import few_or_many
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(600, 3, 2.0)
SITE = np.array(["a", "b", ""])[np.arange(600) % 3]
WIDE = LOGITS.max(axis=1) > 3


def test_each_segment_has_the_metrics_of_its_rows_at_its_share_of_the_level() -> None:
    """Three columns of values, of which an empty text is no segment, and of booleans."""
    segments = {"site": SITE, "wide": WIDE}
    metrics, weights = ["ece", "nll"], np.arange(600) % 5
    for options in ({"intervals": True}, {"sample_weight": weights}):
        result = recalib.evaluate(
            LABELS, logits=LOGITS, segments=segments, metrics=metrics, **options
        )
        assert [*result.segments] == ["site=a", "site=b", "wide=False", "wide=True"]
        rows = np.flatnonzero(SITE == "b")
        own = {k: v[rows] if k == "sample_weight" else v for k, v in options.items()}
        expected = recalib.evaluate(
            LABELS[rows], logits=LOGITS[rows], metrics=metrics, level=1 - 0.05 / 4, **own
        )
        assert result.segments["site=b"] == expected
        assert result.segments["site=b"].rows == 200
        assert not result.segments["site=b"].segments


@few_or_many(20, 2000)
def test_intervals_of_all_segments_hold_together(draws: int) -> None:
    """Eight segments of 50 to 400 rows with errors of their own; 95% by the exact interval.

    The truth of the debiased error of one bin is |accuracy − confidence|.
    """
    rng, held = np.random.default_rng(0), 0
    segments = np.repeat([str(k) for k in range(8)], np.linspace(50, 400, 8).astype(int))
    truth = {f"segment={k}": 0.02 * k for k in range(8)}
    for _ in range(draws):
        p = np.full(len(segments), 0.7)
        labels = rng.random(len(p)) < p - np.array([0.02 * int(k) for k in segments])
        result = recalib.evaluate(
            labels, p, segments=segments, metrics=["binary_ece"], intervals=True
        )
        parts = {name: part["binary_ece"] for name, part in result.segments.items()}
        held += all(part.low <= truth[name] <= part.high for name, part in parts.items())
    assert scipy.stats.binomtest(held, draws).proportion_ci(0.99).high >= 0.95


def test_errors_name_the_field() -> None:
    with pytest.raises(InputError, match=r"segments: found shape \(3,\)"):
        recalib.evaluate(LABELS, logits=LOGITS, segments=["a", "b", "c"])
    with pytest.raises(InputError, match="segments: found multilabel rows, or ignore_index"):
        recalib.evaluate(LABELS, logits=LOGITS, segments=SITE, ignore_index=255)
