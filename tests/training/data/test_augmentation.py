"""Crops and flips of batches match slow loops and depend only on the generator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from recalib.errors import InputError
from training.data import AUGMENTATIONS, augmentation


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _applied(name: str, images: Tensor, seed: int = 0) -> Tensor:
    answer = augmentation(name)(images, _generator(seed))
    assert isinstance(answer, Tensor)
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
    words = torch.ones(3, 7, dtype=torch.long)
    for name in ("crop", "flip", "crop_flip"):
        with pytest.raises(InputError, match="images"):
            augmentation(name)(words, _generator())
        with pytest.raises(InputError, match="images"):
            augmentation(name)((words, words), _generator())
    assert augmentation("none")(words, _generator()) is words
