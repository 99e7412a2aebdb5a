"""Temperature by NLL: the same optimum as scipy's, and a result for all inputs."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from recalib.fitting.newton import fit_temperature
from tests.fitting.conftest import draw


def nll(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    logs = scipy.special.log_softmax(logits.astype(np.float64) / temperature, axis=1)
    return -float(logs[np.arange(len(labels)), labels].mean())


def by_scipy(logits: np.ndarray, labels: np.ndarray) -> float:
    result = scipy.optimize.minimize_scalar(
        lambda t: nll(logits, labels, np.exp(t)), bounds=(-8, 8), options={"xatol": 1e-10}
    )
    return float(np.exp(result.x))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0, 8.0])
@pytest.mark.parametrize(("rows", "classes"), [(200, 2), (500, 10), (9000, 5), (300, 200)])
def test_agrees_with_scipy(rows: int, classes: int, temperature: float) -> None:
    logits, labels = draw(rows, classes, temperature)
    result = fit_temperature(logits, labels)
    assert result.converged
    assert not result.end
    # scipy looks at values, whose differences drown in rounding √ε away from the minimum.
    assert result.temperature == pytest.approx(by_scipy(logits, labels), rel=1e-5)
    assert result.nll == pytest.approx(nll(logits, labels, result.temperature), rel=1e-9)


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 17]), st.integers(20, 60))
def test_gradient_vanishes_at_the_optimum(seed: int, classes: int, rows: int) -> None:
    logits, labels = draw(rows, classes, 1.5, seed)
    result = fit_temperature(logits, labels)
    if result.end:
        return
    t, step = result.temperature, 1e-4
    slope = (nll(logits, labels, t * (1 + step)) - nll(logits, labels, t * (1 - step))) / (2 * step)
    assert abs(slope) < 1e-6


@pytest.mark.parametrize("scale", [1e-30, 1e-4, 4000.0, 1e30])
def test_temperature_scales_with_the_logits(scale: float) -> None:
    logits, labels = draw(400, 6, 2.0)
    base = fit_temperature(logits, labels)
    scaled = fit_temperature(logits * scale, labels)
    assert scaled.temperature / scale == pytest.approx(base.temperature, rel=1e-9)


def test_shifted_rows_give_the_same_temperature() -> None:
    logits, labels = draw(400, 6, 2.0)
    shifts = np.random.default_rng(1).normal(size=(400, 1)) * 50
    assert fit_temperature(logits + shifts, labels).temperature == pytest.approx(
        fit_temperature(logits, labels).temperature, rel=1e-9
    )


def test_duplicated_rows_give_the_same_temperature() -> None:
    logits, labels = draw(400, 6, 2.0)
    assert fit_temperature(
        np.tile(logits, (3, 1)), np.tile(labels, 3)
    ).temperature == pytest.approx(fit_temperature(logits, labels).temperature, rel=1e-9)


def test_threads_and_subsample_agree_with_one_thread() -> None:
    """The data is large enough for several chunks, threads and the subsample start."""
    logits, labels = draw(12_000, 50, 2.0)
    assert fit_temperature(logits, labels).temperature == pytest.approx(
        by_scipy(logits, labels), rel=1e-5
    )


@pytest.mark.parametrize(("rows", "classes", "seed"), [(9_000, 3, 0), (30_000, 20, 1)])
def test_large_data_converges_to_the_documented_tolerance(
    rows: int, classes: int, seed: int
) -> None:
    """Against a bisection on the slope, in float64, to the last bit; the docstring says 1e-10."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 4
    labels = (logits / 3 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    true = logits[np.arange(rows), labels]

    def slope(beta: float) -> float:
        return float(((scipy.special.softmax(beta * logits, axis=1) * logits).sum(1) - true).mean())

    exact = 1 / scipy.optimize.brentq(slope, 0.1, 1.0, xtol=1e-15, rtol=1e-15)
    assert fit_temperature(logits, labels).temperature == pytest.approx(exact, rel=1e-9)


def test_separable_data_ends_on_the_lower_bound() -> None:
    logits, _ = draw(200, 5, 1.0)
    result = fit_temperature(logits, logits.argmax(axis=1))
    assert result.end == "lower"
    assert result.temperature > 0


def test_all_wrong_labels_end_on_the_upper_bound() -> None:
    logits, _ = draw(200, 5, 1.0)
    result = fit_temperature(logits, logits.argmin(axis=1))
    assert result.end == "upper"
    assert np.isfinite(result.temperature)
    assert result.nll == pytest.approx(np.log(5), abs=0.01)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e30])
def test_constant_logits_have_no_temperature(value: float) -> None:
    result = fit_temperature(np.full((7, 3), value), np.arange(7) % 3)
    assert result.temperature == 1
    assert result.nll == pytest.approx(np.log(3))
    assert "no temperature has any effect" in result.solution.warnings[0]


def test_masked_classes_are_ignored() -> None:
    """A masked class equals a class with a logit of minus one million."""
    logits, labels = draw(500, 6, 2.0)
    rng = np.random.default_rng(5)
    masked = rng.random(logits.shape) < 0.3
    masked[np.arange(500), labels] = False
    with_mask = np.where(masked, -np.inf, logits)
    low = np.where(masked, -1e6, logits)
    assert fit_temperature(with_mask, labels).temperature == pytest.approx(
        by_scipy(low, labels), rel=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_float16_and_float32_are_converted_to_float64(dtype: type) -> None:
    logits, labels = draw(500, 6, 2.0)
    narrow = logits.astype(dtype)
    assert fit_temperature(narrow, labels).temperature == pytest.approx(
        fit_temperature(narrow.astype(np.float64), labels).temperature, rel=1e-9
    )


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_give_a_positive_temperature(rows: int) -> None:
    logits, labels = draw(rows, 4, 1.0)
    result = fit_temperature(logits, labels)
    assert 0 < result.temperature < np.inf


def test_real_logits_give_the_published_result(real_data) -> None:
    """The published optimum: T = 2.39501."""
    with np.load(real_data / "resnet110-cifar10-val.npz") as file:
        result = fit_temperature(file["logits"], file["labels"])
    assert result.temperature == pytest.approx(2.39501, abs=5e-6)
