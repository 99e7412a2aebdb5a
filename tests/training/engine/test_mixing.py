"""Mixup and CutMix follow their papers, and training with them resumes exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recalib.errors import InputError
from recalib.recipe import Mixing
from tests.training.engine.tiny import Memory, Onlooker, recipe, splits
from training.engine.loop import train
from training.engine.mixing import cut_box, mix

MIXUP, CUTMIX = Mixing(method="mixup", alpha=0.4), Mixing(method="cutmix")


def images(rows: int = 5, height: int = 12, width: int = 16) -> tuple[Tensor, Tensor]:
    """Images whose pixels are the number of their row, from 1; each row is its own class."""
    numbers = torch.arange(1.0, rows + 1)
    return numbers[:, None, None, None].expand(rows, 3, height, width).clone(), torch.arange(rows)


@pytest.mark.parametrize("part", [MIXUP, CUTMIX], ids=["mixup", "cutmix"])
def test_inputs_and_labels_have_the_same_shares(part: Mixing) -> None:
    """The mean over the pixels of an image is the mean of the numbers of its labels."""
    inputs, labels = images()
    shares = []
    for seed in range(50):
        mixed, targets = mix(part, inputs, labels, 5, seed)
        means = targets @ torch.arange(1.0, 6.0)
        torch.testing.assert_close(mixed.mean(dim=(1, 2, 3)), means)
        torch.testing.assert_close(targets.sum(dim=1), torch.ones(5))
        share = targets.diagonal()
        torch.testing.assert_close(targets.roll(-1, 0).diagonal(), 1 - share)
        assert (share == share[0]).all()
        shares.append(float(share[0]))
        again = mix(part, inputs, labels, 5, seed)
        assert torch.equal(mixed, again[0])
        assert torch.equal(targets, again[1])
    assert len(set(shares)) > 20
    assert torch.equal(inputs, images()[0])


def test_mixup_draws_its_share_from_a_beta_distribution() -> None:
    """Beta(α, α) has mean ½ and variance 1 / (4 (2 α + 1))."""
    inputs, labels = torch.zeros(2, 1), torch.tensor([0, 1])
    shares = np.array([float(mix(MIXUP, inputs, labels, 2, seed)[1][0, 0]) for seed in range(1500)])
    variance = 1 / (4 * 1.8)
    assert abs(shares.mean() - 0.5) < 4 * np.sqrt(variance / len(shares))
    assert shares.var() == pytest.approx(variance, rel=0.15)


def test_boxes_have_the_expected_area() -> None:
    """A box of side √s, around a uniform point, has (√s − s/4)² of the image on average.

    For uniform s, the mean of it is 1/2 − 1/5 + 1/48.
    """
    size, rng = 2000, np.random.default_rng(0)

    def areas(share: float | None) -> np.ndarray:
        values = []
        for down, right, uniform in rng.random((6000, 3)):
            rows, columns = cut_box(
                size, 2 * size, uniform if share is None else share, down, right
            )
            values.append((rows.stop - rows.start) * (columns.stop - columns.start))
        return np.array(values) / (2 * size**2)

    for share, expected in ((0.25, (0.5 - 0.0625) ** 2), (1.0, 0.75**2), (None, 77 / 240)):
        values = areas(share)
        deviation = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - expected) < 4 * deviation + 1e-3, share


def test_boxes_are_cut_off_at_the_edges() -> None:
    assert cut_box(8, 8, 0.25, 0.5, 0.5) == (slice(2, 6), slice(2, 6))
    assert cut_box(8, 8, 0.25, 0.0, 0.99) == (slice(0, 2), slice(5, 8))
    assert cut_box(8, 8, 0.0, 0.5, 0.5) == (slice(4, 4), slice(4, 4))


def test_share_of_the_batches_is_mixed() -> None:
    inputs, labels = images()
    part = Mixing(method="cutmix", probability=0.25)
    mixed = [mix(part, inputs, labels, 5, seed)[1] for seed in range(800)]
    count = sum(not torch.equal(targets, torch.eye(5)) for targets in mixed)
    assert abs(count - 200) < 4 * np.sqrt(800 * 0.25 * 0.75) + 10  # some boxes are empty


@pytest.mark.parametrize(
    ("part", "inputs", "labels"),
    [
        (CUTMIX, torch.zeros(4, 2), torch.arange(4)),
        (MIXUP, torch.zeros(4, 2, dtype=torch.int64), torch.arange(4)),
        (MIXUP, (torch.zeros(4, 2), torch.zeros(4)), torch.arange(4)),
        (MIXUP, torch.zeros(4, 1, 2, 2), torch.zeros(4, 2, 2, dtype=torch.int64)),
    ],
)
def test_other_rows_are_refused(part: Mixing, inputs: Any, labels: Tensor) -> None:
    with pytest.raises(InputError, match=r"^mixing.method: "):
        mix(part, inputs, labels, 4, 0)


def test_training_with_mixup_resumes_exactly() -> None:
    """A mixture changes the run; a run that resumes has the same mixtures."""
    data = splits()
    loss = {"options": {"weight": [0.5, 1.0, 2.0]}, "secondary": "mdca"}
    config = recipe(mixing={"method": "mixup"}, loss=loss, checkpoint_steps=1)
    memory, saved = Memory(), []
    complete = train(config, data, memory, Onlooker(lambda: saved.append(memory.data)))
    plain = train(recipe(loss=loss), data, Memory(), Onlooker())
    resumed = Memory()
    resumed.data = saved[6]
    again = train(config, data, resumed, Onlooker())
    for name, weight in complete.weights.items():
        assert torch.equal(weight, again.weights[name])
        assert not torch.equal(weight, plain.weights[name])
    assert complete.history[-1]["loss"] == again.history[-1]["loss"]
