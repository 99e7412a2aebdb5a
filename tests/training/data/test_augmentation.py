"""Crops, flips and scales match slow loops, depend only on the generator, and move label maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from recalib.errors import InputError
from training.data.augmentation import AUGMENTATIONS, _scale, augmentation


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _applied(name: str, images: Tensor, seed: int = 0) -> Tensor:
    labels = torch.arange(len(images))
    answer, same = augmentation(name)(images, labels, _generator(seed))
    assert isinstance(answer, Tensor)
    assert same is labels
    return answer


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    st.integers(0, 1000),
)
def test_crop_against_a_loop(shape: tuple[int, int, int, int], seed: int) -> None:
    """Each image is padded with 4 zeros and cropped at a random offset."""
    images = torch.randn(*shape, generator=_generator(seed))
    count, _, height, width = shape
    down, right = torch.randint(0, 9, (2, count, 1), generator=_generator(seed)).squeeze(2).tolist()
    expected = []
    for image, y, x in zip(images.numpy(), down, right, strict=True):
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
        expected.append(padded[:, y : y + height, x : x + width])
    np.testing.assert_array_equal(_applied("crop", images, seed).numpy(), np.stack(expected))


@given(st.integers(0, 1000))
def test_flip_against_a_loop(seed: int) -> None:
    images = torch.randn(7, 3, 4, 5, generator=_generator(seed))
    mirrored = (torch.rand(7, generator=_generator(seed)) < 0.5).tolist()
    expected = [
        image[:, :, ::-1] if turn else image
        for image, turn in zip(images.numpy(), mirrored, strict=True)
    ]
    np.testing.assert_array_equal(_applied("flip", images, seed).numpy(), np.stack(expected))


def test_places_and_mirrors_are_uniform() -> None:
    """All 81 offsets of a crop and both directions of a flip are equally likely.

    A single lit pixel shows the offset. Chi-squared with 80 degrees of freedom exceeds 140 for one
    seed in 25,000.
    """
    images = torch.zeros(20_000, 1, 9, 9)
    images[:, 0, 4, 4] = 1
    places = _applied("crop", images).flatten(1).argmax(dim=1)
    counts = np.bincount(places.numpy(), minlength=81)
    expected = 20_000 / 81
    assert ((counts - expected) ** 2 / expected).sum() < 140
    images = torch.zeros(20_000, 1, 1, 2)
    images[..., 0] = 1
    share = float(_applied("flip", images)[..., 0].mean())
    # Five standard deviations of a fair coin.
    assert abs(share - 0.5) < 5 * 0.5 / 20_000**0.5


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_result_depends_only_on_the_generator(name: str) -> None:
    """The same generator gives the same batch, independent of the global generator."""
    images = torch.randn(50, 3, 8, 8, generator=_generator())
    before = images.clone()
    augmented = _applied(name, images, seed=5)
    torch.manual_seed(1)
    assert torch.equal(_applied(name, images, seed=5), augmented)
    assert torch.equal(_applied(name, images, seed=6), augmented) == (name == "none")
    assert torch.equal(images, before)
    assert augmented.shape == images.shape


def test_unknown_names_and_inputs_other_than_images_are_refused() -> None:
    with pytest.raises(InputError, match="crop_flip"):
        augmentation("rotate")
    words, labels = torch.ones(3, 7, dtype=torch.long), torch.zeros(3, dtype=torch.long)
    for name in set(AUGMENTATIONS) - {"none"}:
        with pytest.raises(InputError, match="images"):
            augmentation(name)(words, labels, _generator())
        with pytest.raises(InputError, match="images"):
            augmentation(name)((words, words), labels, _generator())
    assert augmentation("none")(words, labels, _generator()) == (words, labels)


@given(
    st.sampled_from(sorted(AUGMENTATIONS)),
    st.tuples(st.integers(1, 5), st.integers(2, 12), st.integers(2, 12)),
    st.integers(0, 1000),
)
def test_images_and_label_maps_stay_aligned(
    name: str, shape: tuple[int, int, int], seed: int
) -> None:
    """Each pixel has its coordinates as its colours, and as its label: row · 100 + column.

    Interpolated coordinates are at most half a pixel from those of the label. Void pixels have no
    colour, and are exactly those from outside the image.
    """
    count, height, width = shape
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    images = torch.stack([rows, columns, torch.ones_like(rows)]).expand(count, -1, -1, -1).float()
    labels = (100 * rows + columns).expand(count, -1, -1)
    moved, targets = augmentation(name, ignore_index=9999)(images, labels, _generator(seed))
    assert isinstance(moved, Tensor)
    assert targets.shape == labels.shape
    assert targets.dtype == labels.dtype
    is_void = targets == 9999
    assert torch.equal(moved[:, 2] == 0, is_void)
    for colour, coordinate in ((moved[:, 0], targets // 100), (moved[:, 1], targets % 100)):
        assert ((colour - coordinate)[~is_void].abs() <= 0.5 + 1e-5).all()
    if name == "none":
        assert torch.equal(moved, images)
    elif "scale" not in name:
        assert torch.equal(moved[:, 0][~is_void].long(), targets[~is_void] // 100)
        assert torch.equal(moved[:, 1][~is_void].long(), targets[~is_void] % 100)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_scale_against_interpolation_of_torch(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that is scaled around its centre is a crop or a frame of the one that torch scales.

    With these factors, the edges of the scaled image are at whole pixels.
    """
    images = torch.randn(3, 2, 8, 8, generator=_generator(), dtype=torch.float64)
    draws = iter([torch.full((3,), float(factor == 2)), torch.full((2, 3), 0.5)])
    monkeypatch.setattr(torch, "rand", lambda *_, **__: next(draws).double())
    moved = _scale(images.shape, _generator())(images, 0)
    scaled = functional.interpolate(images, scale_factor=factor, mode="bilinear")
    expected = scaled[:, :, 4:12, 4:12] if factor == 2 else functional.pad(scaled, [2] * 4)
    np.testing.assert_allclose(moved.numpy(), expected.numpy(), atol=1e-12)


def test_label_maps_that_cannot_move_are_refused() -> None:
    """Places outside need a void label, which a flip does not; sizes must agree."""
    images, labels = torch.zeros(2, 3, 8, 8), torch.zeros(2, 8, 8, dtype=torch.long)
    for name in ("crop", "crop_flip", "scale_flip"):
        with pytest.raises(InputError, match=r"no void label.*flip or none.*ignore_index"):
            augmentation(name)(images, labels, _generator())
    augmentation("flip")(images, labels, _generator())
    with pytest.raises(InputError, match=r"images \(8, 8\) and labels \(4, 4\)"):
        augmentation("flip", 255)(images, labels[:, ::2, ::2], _generator())
