"""Corruptions match independent slow implementations and keep a common contract."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from recalib.errors import InputError
from training.data.arrays import Array
from training.data.corruption import CORRUPTIONS, SEVERITIES, corrupt, corrupted
from training.data.pixels import Pixels, Scale
from training.data.split import Split


def _images(rows: int = 12, size: int = 16) -> NDArray[np.uint8]:
    """Smooth pictures: waves of each channel."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:size, :size] / size
    down, right, phase = rng.uniform(0, 6, (3, rows, 3))
    waves = np.sin(
        down[:, None, None, :] * y[None, :, :, None]
        + right[:, None, None, :] * x[None, :, :, None]
        + phase[:, None, None, :]
    )
    return ((waves + 1) * 127.5).astype(np.uint8)


def _by_colorsys(
    images: NDArray[np.uint8], change: Callable[[float, float, float], tuple[float, float, float]]
) -> NDArray[np.float64]:
    """Return values in [0, 255] after changing hue, saturation and value of each pixel."""
    plain = images.reshape(-1, 3) / 255
    colours = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*pixel))) for pixel in plain]
    return np.array(colours).reshape(images.shape) * 255


@pytest.mark.parametrize("severity", SEVERITIES)
def test_colours_against_the_standard_library(severity: int) -> None:
    """Brightness and saturation change HSV value and saturation, also for black and grey."""
    images = _images(3, 8)
    images[0, 0], images[0, 1] = 0, 90
    more = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    brighter = _by_colorsys(images, lambda h, s, v: (h, s, min(v + more, 1)))
    # Truncation of fractions may differ by one because of rounding.
    assert np.abs(corrupt(images, "brightness", severity) - np.floor(brighter + 1e-6)).max() <= 1
    factor, more = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[severity - 1]
    richer = _by_colorsys(images, lambda h, s, v: (h, min(max(s * factor + more, 0), 1), v))
    assert np.abs(corrupt(images, "saturate", severity) - np.floor(richer + 1e-6)).max() <= 1


@pytest.mark.parametrize("severity", SEVERITIES)
def test_blur_against_a_loop(severity: int) -> None:
    """Blur is the normalised normal density out to four standard deviations, edges repeated."""
    images = _images(1, 9)
    width = (0.4, 0.6, 0.7, 0.8, 1.0)[severity - 1]
    reach = int(4 * width + 0.5)
    weights = np.array([math.exp(-(d**2) / (2 * width**2)) for d in range(-reach, reach + 1)])
    kernel = np.outer(weights, weights) / weights.sum() ** 2
    padded = np.pad(images[0].astype(float), ((reach, reach), (reach, reach), (0, 0)), "edge")
    expected = np.empty(images[0].shape)
    for y in range(9):
        for x in range(9):
            window = padded[y : y + 2 * reach + 1, x : x + 2 * reach + 1]
            expected[y, x] = (window * kernel[:, :, None]).sum(axis=(0, 1))
    blurred = corrupt(images, "gaussian_blur", severity)[0]
    assert np.abs(blurred - np.floor(expected + 1e-6)).max() <= 1


def test_noise_has_the_documented_strength() -> None:
    """Mean and standard deviation on grey images, where no value is clipped."""
    grey = np.full((40, 32, 32, 3), 128, dtype=np.uint8)
    values = grey.size
    level = 128 / 255
    for severity in SEVERITIES:
        scale = (0.04, 0.06, 0.08, 0.09, 0.10)[severity - 1]
        noise = corrupt(grey, "gaussian_noise", severity) / 255 - level
        assert noise.std() == pytest.approx(scale, rel=0.01)
        # Fractions are cut off: half of one of 255 steps is missing on average.
        assert noise.mean() == pytest.approx(-0.5 / 255, abs=5 * scale / values**0.5)
        photons = (500, 250, 100, 75, 50)[severity - 1]
        counted = corrupt(grey, "shot_noise", severity) / 255
        # 2%: numbers of photons and bytes are two grids that do not fit each other.
        assert counted.std() == pytest.approx(math.sqrt(level / photons), rel=0.02)
        share = (0.01, 0.02, 0.03, 0.05, 0.07)[severity - 1]
        salted = corrupt(grey, "impulse_noise", severity)
        for value in (0, 255):
            hit = (salted == value).mean()
            assert hit == pytest.approx(share / 2, abs=5 * math.sqrt(share / 2 / values))


def test_contrast() -> None:
    images = _images(2)
    for severity, factor in zip(SEVERITIES, (0.75, 0.5, 0.4, 0.3, 0.15), strict=True):
        mean = images.mean(axis=(1, 2), keepdims=True)
        expected = np.floor((images - mean) * factor + mean + 1e-6)
        assert np.abs(corrupt(images, "contrast", severity) - expected).max() <= 1


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_contract_of_all_corruptions(name: str) -> None:
    """Bytes of the same shape, the same for the same seed; a higher severity is farther away."""
    images = _images()
    before = images.copy()
    distances = []
    for severity in SEVERITIES:
        changed = corrupt(images, name, severity, seed=3)
        assert (changed.dtype, changed.shape) == (np.uint8, images.shape)
        np.testing.assert_array_equal(changed, corrupt(images, name, severity, seed=3))
        distances.append(float(np.abs(changed.astype(float) - images).mean()))
    np.testing.assert_array_equal(images, before)
    assert distances[0] > 0
    # Saturation falls at severities 1 and 2, and rises from 3 on.
    if name == "saturate":
        distances = distances[2:]
    if name != "pixelate":  # which of two grids fits a picture better is chance
        assert distances == sorted(distances)
    else:
        assert distances[-1] > distances[0]
    random = "noise" in name
    assert np.array_equal(corrupt(images, name, 3), corrupt(images, name, 3, seed=4)) == (
        not random
    )


def test_corrupted_split() -> None:
    """A corrupted split keeps labels, order and scale."""
    images = _images()
    scale = Scale((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    split = Split.with_all_rows(Pixels(images, scale), np.arange(12) % 3).subset([5, 3, 8])
    changed = corrupted(split, "contrast", 4)
    np.testing.assert_array_equal(changed.labels, split.labels)
    expected = scale.applied(torch.from_numpy(corrupt(images[[5, 3, 8]], "contrast", 4)))
    np.testing.assert_array_equal(changed.batch([0, 1, 2]), expected)
    assert changed.digest != split.digest


def test_invalid_arguments_are_refused() -> None:
    images = _images(1)
    with pytest.raises(InputError, match="gaussian_blur"):
        corrupt(images, "fog", 1)
    with pytest.raises(InputError, match="1 to 5"):
        corrupt(images, "jpeg", 6)
    with pytest.raises(InputError, match="uint8"):
        corrupt(images / 255, "jpeg", 1)  # type: ignore[arg-type]
    numbers = Split.with_all_rows(Array(np.zeros((2, 3))), np.zeros(2, dtype=np.int64))
    with pytest.raises(InputError, match="images"):
        corrupted(numbers, "jpeg", 1)
