"""Windows: values against slow definitions, coverage of the intervals, and edge cases."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from recalib.drift import CalibrationSums, label_coverage, summarise_window
from recalib.errors import InputError
from tests.draws import few_or_many

Values = NDArray[np.float64]

EVEN = np.arange(1, 15) / 15


def sums_of(p: Values, y: NDArray[Any], edges: Values = EVEN) -> CalibrationSums:
    sums = CalibrationSums.empty(edges)
    sums.add_traffic(p)
    sums.add_labels(p, y)
    return sums


def draw(rng: np.random.Generator, rows: int) -> tuple[Values, Values]:
    p = rng.beta(8, 1.5, size=rows)
    return p, (rng.random(rows) < p).astype(float)


def test_values_equal_a_loop_over_pairs():
    """ECE, and `squared_ce` as the mean of r_i r_j over pairs in one bin."""
    p, y = draw(np.random.default_rng(0), 120)
    edges = np.array([0.6, 0.8, 0.9])
    summary = summarise_window(sums_of(p, y, edges))
    ece, squared, floor = 0.0, 0.0, 0.0
    for low, high in zip([0, *edges], [*edges, 1.1], strict=True):
        at = (p >= low) & (p < high)
        r, n = y[at] - p[at], int(at.sum())
        ece += abs(r.sum()) / len(p)
        squared += n / len(p) * sum(a * b for a, b in permutations(r, 2)) / (n * (n - 1))
        floor += n / len(p) * np.sqrt(2 * np.sum(p[at] * (1 - p[at])) / (np.pi * n**2))
    assert summary.ece == pytest.approx(ece)
    assert summary.squared_ce == pytest.approx(squared)
    assert summary.ece_floor == pytest.approx(floor)
    assert (summary.bins, summary.labelled, summary.traffic) == (4, 120, 120)


def test_traffic_weights_estimate_the_error_of_all_predictions():
    """One half has few labels; with traffic weights it still counts for half."""
    sums = CalibrationSums.empty([0.5])
    sums.add_counts([1000, 1000])
    sums.add_labels(np.full(50, 0.4), np.arange(50) < 30)
    sums.add_labels(np.full(950, 0.9), np.arange(950) < 855)
    assert summarise_window(sums).ece == pytest.approx(0.05 * 0.2)
    assert summarise_window(sums, weighting="traffic").ece == pytest.approx(0.5 * 0.2)


def test_bins_with_fewer_than_two_labels_are_merged():
    sums = sums_of(np.array([0.1, 0.3, 0.31, 0.55, 0.95]), np.array([1.0, 0, 1, 1, 1]))
    summary = summarise_window(sums)
    assert summary.bins == 2
    gaps = (2 - 0.71) / 5, (2 - 1.5) / 5
    assert summary.ece == pytest.approx(sum(gaps))


def test_values_are_none_without_enough_labels():
    """No value is NaN."""
    empty = summarise_window(CalibrationSums.empty(EVEN))
    assert (empty.labelled, empty.accuracy, empty.ece, empty.ce_high) == (0, None, None, None)
    single = summarise_window(sums_of(np.array([0.9]), np.array([1.0])))
    assert (single.labelled, single.accuracy, single.ece) == (1, 1.0, None)


@pytest.mark.parametrize("confidence", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("weighting", ["labelled", "traffic"])
def test_every_value_is_finite_and_inside_its_interval(confidence, right, weighting):
    """Also if the sample variance of a bin is 0; all values can be written as JSON."""
    for rows in (2, 3, 1000):
        p, y = np.full(rows, confidence), np.full(rows, float(right))
        summary = summarise_window(sums_of(p, y), weighting=weighting)
        json.dumps(summary.to_dict(), allow_nan=False)
        assert 0 <= summary.ece_low <= summary.ece <= summary.ece_high <= 1
        assert 0 <= summary.ece_widest_low <= summary.ece <= summary.ece_widest_high <= 1
        assert 0 <= summary.ce_low <= summary.ce <= summary.ce_high <= 1
        assert summary.squared_ce_error > 0


def truth_of(p: Values, kind: str) -> Values:
    return {"calibrated": p, "overconfident": 0.95 * p, "local": np.where(p > 0.9, p - 0.1, p)}[
        kind
    ]


@pytest.mark.parametrize(
    ("kind", "weighting"),
    [("calibrated", "labelled"), ("local", "labelled"), ("overconfident", "traffic")],
)
@few_or_many(25, 150)
def test_interval_coverage(kind, weighting, draws):
    """Draws of Beta(30, .6) at n = 300, where nearly all confidences are near 1.

    The normal interval of the unbiased square covers the truth in 78% of calibrated draws. The
    test requires 93%, and fails for a count that a coverage of 93% gives with probability 0.001.
    """
    rng = np.random.default_rng(1)
    law, many = scipy.stats.beta(30, 0.6), 20_000
    all_p = law.ppf((np.arange(many) + 0.5) / many)
    where = np.searchsorted(EVEN, all_p, side="right")
    shares = np.bincount(where, minlength=15) / many
    gaps = np.bincount(where, truth_of(all_p, kind) - all_p, 15) / np.maximum(shares * many, 1)
    ece, ce = shares @ np.abs(gaps), np.sqrt(shares @ gaps**2)
    covered = np.zeros(3)
    for _ in range(draws):
        p = law.rvs(300 if weighting == "labelled" else 3_000, random_state=rng)
        sums = CalibrationSums.empty(EVEN)
        sums.add_traffic(p)
        # Selective labels: low confidences are labelled more often.
        chosen = p if weighting == "labelled" else p[rng.random(len(p)) < 0.9 - 0.85 * p]
        sums.add_labels(chosen, rng.random(len(chosen)) < truth_of(chosen, kind))
        summary = summarise_window(sums, weighting=weighting)
        for index, (low, high, true) in enumerate(
            (
                (summary.ece_low, summary.ece_high, ece),
                (summary.ece_widest_low, summary.ece_widest_high, ece),
                (summary.ce_low, summary.ce_high, ce),
            )
        ):
            covered[index] += low - 1e-12 <= true <= high + 1e-12
    assert covered.min() >= scipy.stats.binom.ppf(1e-3, draws, 0.93)


def test_the_squared_error_is_unbiased():
    """Over 200 draws of a miscalibrated model; the mean within 4 of its standard errors."""
    rng = np.random.default_rng(2)
    edges = np.array([0.5, 0.75])
    p = np.repeat([0.3, 0.6, 0.9], [60, 90, 150])
    truth = np.repeat([0.45, 0.6, 0.8], [60, 90, 150])
    true = float(np.mean((truth - p) ** 2))
    windows = [summarise_window(sums_of(p, rng.random(300) < truth, edges)) for _ in range(200)]
    squares = np.array([window.squared_ce for window in windows])
    assert abs(squares.mean() - true) < 4 * squares.std() / np.sqrt(200)
    errors = np.array([window.squared_ce_error for window in windows])
    # A standard deviation of 200 is known to 5%, and its estimate is 5% off where n is 60.
    assert errors.mean() == pytest.approx(squares.std(), rel=0.25)


def labelled(rng: np.random.Generator, rows: int, kind: str) -> CalibrationSums:
    p, y = draw(rng, rows)
    rate = {
        "random": np.full(rows, 0.3),
        "few": np.full(rows, 0.004),
        "all but a few": np.full(rows, 0.999),
        "low confidence": 0.5 - 0.3 * p,
        "errors": np.where(y == 1, 0.7, 1.0),
    }[kind]
    sums = CalibrationSums.empty(EVEN)
    sums.add_traffic(p)
    chosen = rng.random(rows) < rate
    sums.add_labels(p[chosen], y[chosen])
    return sums


@pytest.mark.parametrize(
    ("kind", "rows"), [("random", 3_000), ("few", 3_000), ("all but a few", 4_000)]
)
@few_or_many(100, 600)
def test_random_labels_are_rarely_flagged_as_selective(kind, rows, draws):
    """Flags are expected in 1% of draws; as many as fail have a probability of 1 in 2,000."""
    rng = np.random.default_rng(3)
    flags = 0
    for _ in range(draws):
        coverage = label_coverage(labelled(rng, rows, kind))
        assert coverage is not None
        flags += coverage.selective
    assert flags <= scipy.stats.binom.isf(5e-4, draws, 0.01)


@pytest.mark.parametrize("kind", ["low confidence", "errors"])
def test_selective_labels_are_flagged(kind):
    """Also if all errors and 70% of correct predictions are labelled."""
    rng = np.random.default_rng(4)
    coverages = [label_coverage(labelled(rng, 6_000, kind)) for _ in range(20)]
    assert all(coverage is not None and coverage.selective for coverage in coverages)


def test_coverage_edge_cases():
    assert label_coverage(CalibrationSums.empty(EVEN)) is None
    sums = sums_of(np.array([0.9]), np.array([1.0]))
    everything = label_coverage(sums)
    assert everything is not None
    assert (everything.share, everything.selective) == (1.0, False)
    assert everything.by_bin[0] is None
    lost = CalibrationSums.empty(EVEN)  # a crash has lost the traffic
    lost.add_labels([0.9] * 10, [1] * 10)
    coverage = label_coverage(lost)
    assert coverage is not None
    assert coverage.share == 1
    silent = CalibrationSums.empty(EVEN)
    silent.add_traffic(np.linspace(0, 1, 100))
    unlabelled = label_coverage(silent)
    assert unlabelled is not None
    assert (unlabelled.share, unlabelled.selective) == (0.0, False)


def test_a_level_out_of_range_is_rejected():
    with pytest.raises(InputError):
        summarise_window(CalibrationSums.empty(EVEN), level=1.0)
