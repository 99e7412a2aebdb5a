"""Roots of falling functions, and the two ends that they give."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from recalib.metrics.roots import ends_of_square, falling_roots


@pytest.mark.parametrize("start", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("slope", [-1e-3, -1.0, -1e3])
def test_roots_are_those_of_brentq_from_any_start(start: float, slope: float) -> None:
    """Straight, steep, and flat at both ends; the guess of the slope may be wrong by far."""
    scales, roots = np.array([1e-3, 1.0, 30.0]), np.array([0.2, 0.5, 0.8])

    def function(x: np.ndarray) -> np.ndarray:
        return np.tanh(scales * (roots - x)) - 0.1 * scales / 30

    result = falling_roots(function, np.full(3, start), 0.0, 1.0, slope=slope, precision=1e-9)
    expected = [
        scipy.optimize.brentq(lambda x, i=i: function(np.full(3, x))[i], 0, 1, xtol=1e-14)
        for i in range(3)
    ]
    np.testing.assert_allclose(result, expected, atol=1e-8)


def test_function_without_a_root_gives_the_nearest_end() -> None:
    result = falling_roots(
        lambda x: np.array([1.0, -1.0]) - 0.1 * x,
        np.full(2, 0.4),
        0.0,
        1.0,
        slope=-1,
        precision=1e-6,
    )
    np.testing.assert_array_equal(result, [1.0, 0.0])


def test_ends_of_a_normal_root_are_its_quantiles() -> None:
    """√T normal about √θ: the ends are (√t ± z·s)², and 0 if θ = 0 is not rejected."""
    z = scipy.special.ndtri(0.975)
    for root in (0.3, 0.01):
        low, high = ends_of_square(
            lambda theta, root=root: scipy.special.ndtr((root - np.sqrt(theta)) / 0.02),
            np.array([0.975, 0.025]),
            root,
            0.05,
        )
        expected = max(root - z * 0.02, 0.0) ** 2, (root + z * 0.02) ** 2
        assert (low, high) == pytest.approx(expected, rel=1e-9)
