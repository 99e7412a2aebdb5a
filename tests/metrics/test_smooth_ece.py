"""Smooth ECE: definition by brute force, and its fixed-point bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.ndimage
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import recalib.metrics.smooth_ece as module
from recalib.metrics.smooth_ece import _integral_of_absolute, _spectrum, smooth_residuals
from tests.draws import few_or_many
from tests.metrics.rows import measure

Values = NDArray[np.float64]
GRID = np.linspace(0, 1, 20_001)


def slow(p: Values, y: Values, bandwidth: float) -> float:
    """∫ |1/N Σ K_σ(t, p_i)(y_i − p_i)| dt, with images of each row beyond 0 and 1."""
    total = np.zeros(len(GRID))
    reach = int(5 * bandwidth) + 2
    for row, right in zip(p, y, strict=True):
        for image in range(-reach, reach + 1):
            for mirrored in (row, -row):
                distance = (GRID - 2 * image - mirrored) / bandwidth
                total += (right - row) * np.exp(-(distance**2) / 2)
    total /= bandwidth * np.sqrt(2 * np.pi) * len(p)
    return float(np.trapezoid(np.abs(total), GRID))


def drawn(seed: int, rows: int) -> tuple[Values, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    p = rng.choice([rng.uniform(0.51, 1), *rng.uniform(0.51, 1, rows), 1.0], rows)
    return p, rng.random(rows) < 0.8


@settings(max_examples=5)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_matches_brute_force_definition(seed: int, rows: int) -> None:
    """To the 1e-5 that its docstring promises."""
    p, y = drawn(seed, rows)
    result = measure("smooth_ece", p, y).value
    if result < 1e-3:  # what 20,001 points resolve
        assert slow(p, y, 1e-3) <= 1e-3
        return
    expected = scipy.optimize.brentq(lambda s: slow(p, y, s) - s, result / 2, 2 * result, xtol=1e-9)
    assert result == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("bandwidth", "published"), [(0.01, 0.122369), (0.03, 0.120777), (0.1, 0.102881)]
)
def test_smoothing_matches_published_code(bandwidth: float, published: float) -> None:
    """`smECE_sigma` of relplot 1.0.3 with 2,000 mesh points, a coarser grid, on these rows.

    Not for bandwidths over 0.1: its kernel ends at ±1/2.
    """
    p = 0.5 + 0.5 * (np.arange(300) + 0.5) / 300
    y = np.arange(300) % 4 > 0
    spectrum = _spectrum(p, (y - p) / 300, 2**14)
    result = _integral_of_absolute(smooth_residuals(spectrum, bandwidth))
    assert result == pytest.approx(published, rel=1e-3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 50))
def test_smoothing_decreases_the_error_down_to_the_mean_gap(seed: int, rows: int) -> None:
    p, y = drawn(seed, rows)
    spectrum = _spectrum(p, (y - p) / rows, 2**13)
    widths = [0.01, 0.03, 0.1, 0.3, 1, 3]
    errors = [_integral_of_absolute(smooth_residuals(spectrum, width)) for width in widths]
    assert np.all(np.diff(errors) <= 1e-6)
    assert errors[-1] == pytest.approx(abs(np.mean(y - p)), abs=1e-6)


def test_value_is_between_mean_gap_and_unsmoothed_error() -> None:
    rng = np.random.default_rng(0)
    p = rng.choice([0.6, 0.7, 0.8, 0.9], 500)
    y = rng.random(500) < p + 0.3 * (p - 0.75)
    rough = sum(abs(np.sum((y - p)[p == value])) for value in np.unique(p)) / 500
    assert abs(np.mean(y - p)) < measure("smooth_ece", p, y).value < rough


def test_value_is_continuous_in_confidences() -> None:
    """Confidence 0.75 with 3 of 4 correct, or slightly higher for correct rows."""
    y = np.arange(200) % 4 > 0
    right = np.repeat(0.75, 200)
    apart = right + np.where(y, 1e-6, -1e-6)
    assert measure("smooth_ece", right, y).value < 1e-4
    assert measure("smooth_ece", apart, y).value < 1e-3
    assert measure("ece_sweep", apart, y).value > 0.3


@pytest.mark.parametrize(
    "gap",
    [1e-3, 6e-5, 1e-12, *(pytest.param(gap, marks=pytest.mark.slow) for gap in (1e-4, 1e-5, 1e-7))],
)
def test_small_errors_of_one_sign_are_measured(gap: float) -> None:
    """All rows are correct with confidence 1 − gap: the mean gap at any bandwidth."""
    result = measure("smooth_ece", np.full(50, 1 - gap), np.ones(50, bool)).value
    assert result == pytest.approx(gap, rel=1e-4)


@pytest.mark.parametrize("gap", [1e-3, 1e-5, pytest.param(1e-4, marks=pytest.mark.slow)])
def test_small_errors_of_two_signs_are_measured(gap: float) -> None:
    """Gaps of ±gap at two distant confidences: their size, less mutual smoothing."""
    p = np.repeat([0.6 + gap, 0.8 - gap], 50)
    y = np.arange(100) % 50 < np.repeat([30, 40], 50)
    assert measure("smooth_ece", p, y).value == pytest.approx(gap, abs=6e-5, rel=1e-5)


def test_value_of_many_noisy_rows_matches_a_filter_on_a_fine_grid() -> None:
    """The error is far below the cells of a coarse grid; the filter is that of SciPy."""
    rng, cells = np.random.default_rng(0), 2**17
    p = 1 - 0.02 * rng.random(50_000)
    y = rng.random(50_000) < p
    gaps = np.bincount((p * cells).astype(int), weights=y - p, minlength=cells) / len(p)

    def size(bandwidth: float) -> float:
        smooth = scipy.ndimage.gaussian_filter1d(gaps, bandwidth * cells, truncate=6)
        return float(np.abs(smooth).sum())

    expected = scipy.optimize.brentq(lambda s: size(s) - s, 1e-4, 1e-2)
    assert expected < 1e-3
    assert measure("smooth_ece", p, y).value == pytest.approx(expected, rel=5e-3)


TRUTHS: dict[str, Callable[[Values], Values]] = {
    "calibrated": lambda p: p,
    "10% too sure": lambda p: 0.9 * p,
    "wrong where sure": lambda p: np.where(p > 0.93, p - 0.03, p),
}


@pytest.mark.parametrize(
    ("truth", "skewed"),
    [
        ("calibrated", True),
        pytest.param("10% too sure", False, marks=pytest.mark.slow),
        ("wrong where sure", True),
    ],
)
@few_or_many(15, 120)
def test_interval_covers_the_true_value(
    truth: str, skewed: bool, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coverage over samples of 300 rows is at least 93%, less two standard errors.

    The true value is that of 20,000 quantiles of the distribution.
    """
    # The floor, which takes most of the time, is tested below.
    monkeypatch.setattr(module, "_fixed_points", lambda spectra, start: np.zeros(len(spectra)))
    law = scipy.stats.beta(30, 0.6) if skewed else scipy.stats.uniform(0.5, 0.5)
    population = law.ppf((np.arange(20_000) + 0.5) / 20_000)
    gaps = (TRUTHS[truth](population) - population) / len(population)
    true_value = module._fixed_point(_spectrum(population, gaps, 2**14))
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(draws):
        p = law.rvs(300, random_state=rng)
        result = measure("smooth_ece", p, rng.random(300) < TRUTHS[truth](p), 0.95)
        assert 0 <= result.low <= result.value <= result.high <= 1
        assert result.high - result.low < 0.2
        covered += result.low - 1e-5 <= true_value <= result.high
    assert covered / draws >= 0.93 - 2 * np.sqrt(0.93 * 0.07 / draws)


def test_floor_matches_calibrated_rows() -> None:
    """Mean and 95th percentile of 120 other labels, each by the metric itself."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 300)
    again = [measure("smooth_ece", p, rng.random(300) < p).value for _ in range(120)]
    result = measure("smooth_ece", p, rng.random(300) < p, 0.9)
    assert result.floor == pytest.approx(np.mean(again), rel=0.1)
    assert result.floor_high == pytest.approx(np.quantile(again, 0.95), rel=0.15)
    assert measure("smooth_ece", p, rng.random(300) < p).floor is None


@pytest.mark.parametrize("start", [1e-6, pytest.param(0.03, marks=pytest.mark.slow), 1.0])
def test_fixed_points_match_brent(start: float) -> None:
    """From distant starts; for errors of 0, 1, and below the grid's resolution."""
    rng = np.random.default_rng(0)
    cells = 2**10
    scales = np.exp(rng.uniform(-7, 0, 60))
    spectra = [
        _spectrum(rng.uniform(0, 1, 200), scale * rng.normal(0.3, 1, 200) / 200, cells)
        for scale in scales
    ]
    mass = np.zeros(cells + 1)
    mass[0] = 1.0
    spectra += [np.zeros(cells + 1), mass, 2 * mass, 1e-4 * mass]
    result = module._fixed_points(np.array(spectra), start)
    narrowest = 2 / cells

    def excess(spectrum: Values, s: float) -> float:
        return float(_integral_of_absolute(smooth_residuals(spectrum, s))) - s

    for spectrum, value in zip(spectra, result, strict=True):
        if excess(spectrum, narrowest) <= 0:
            expected = excess(spectrum, narrowest) + narrowest
        elif excess(spectrum, 1.0) >= 0:
            expected = 1.0
        else:
            expected = scipy.optimize.brentq(lambda s, f=spectrum: excess(f, s), narrowest, 1)
        assert value == pytest.approx(expected, rel=5e-3, abs=1e-15)


@pytest.mark.parametrize("size", [1, pytest.param(2, marks=pytest.mark.slow), 50])
@pytest.mark.parametrize("sure", [0.51, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("right", [True, False])
def test_identical_rows_have_a_valid_interval(size: int, sure: float, right: bool) -> None:
    result = measure("smooth_ece", np.full(size, sure), np.full(size, right), 0.95)
    assert 0 <= result.low <= result.value <= result.high <= 1
    # Rounding: the mean of equal numbers may be an ulp above them.
    assert 0 <= result.floor <= result.floor_high + 1e-15 <= 1 + 1e-15
    # Few correct rows do not prove a small error.
    assert result.high > 0.05


def test_one_confidence_noise_is_half_normal() -> None:
    """3,600 rows of 0.9, right in 80%: the error is the mean gap, whose deviation is 0.4/60.

    To 15%, the precision of a 95% quantile of 200 draws.
    """
    p = np.full(3600, 0.9)
    result = measure("smooth_ece", p, np.arange(3600) % 5 > 0, 0.95)
    expected = 1.96 * np.sqrt(np.mean((np.where(np.arange(3600) % 5 > 0, 1, 0) - p) ** 2) / 3600)
    assert result.value == pytest.approx(0.1, rel=1e-3)
    assert result.high - result.value == pytest.approx(expected, rel=0.15)
    assert result.value - result.low == pytest.approx(expected, rel=0.15)
