"""Mixup and CutMix: training rows that are mixtures of two, with the mixture of their labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recalib.errors import InputError
from recalib.recipe import Mixing


def mix(
    part: Mixing, inputs: Any, labels: Tensor, classes: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return a batch of mixtures, and their labels as probabilities (N, K).

    A row x with label y gets the row x' before it in the batch as its partner; the batch is in
    random order. With λ of Beta(α, α), drawn for each batch:

    - mixup: λ·x + (1 − λ)·x', and λ·y + (1 − λ)·y' for one-hot y;
    - CutMix: x with a box of x', of a share 1 − λ of the image before it is cut off at the edges,
      around a point that is uniform in the image. λ of the labels is the share that x keeps.

    Sources: arXiv:1710.09412; arXiv:1905.04899, algorithm 1.

    Parameters
    ----------
    inputs: floats (N, ...); for CutMix images (N, C, H, W).
    labels: integers (N,) in [0, `classes`), on the device of `inputs`.
    seed: determines whether the batch is mixed, λ and the box; they are drawn on the CPU.

    Raises
    ------
    InputError: inputs or labels of other shapes or types.
    """
    _check(part, inputs, labels)
    rng = np.random.default_rng(seed)
    targets = functional.one_hot(labels, classes).float()
    if rng.random() >= part.probability:
        return inputs, targets
    share, partners = rng.beta(part.alpha, part.alpha), inputs.roll(1, 0)
    if part.method == "mixup":
        inputs = torch.lerp(partners, inputs, share)
    else:
        height, width = inputs.shape[2:]
        box = cut_box(height, width, 1 - share, rng.random(), rng.random())
        inputs = inputs.clone()
        inputs[:, :, *box] = partners[:, :, *box]
        area = math.prod(side.stop - side.start for side in box)
        share = 1 - area / (height * width)
    return inputs, torch.lerp(targets.roll(1, 0), targets, share)


def cut_box(
    height: int, width: int, share: float, down: float, right: float
) -> tuple[slice, slice]:
    """Return rows and columns of a box of CutMix.

    Parameters
    ----------
    share: share of the image that the box has, before it is cut off at the edges.
    down, right: its centre, in [0, 1) of height and width.
    """
    sides = []
    for size, centre in ((height, int(down * height)), (width, int(right * width))):
        half = int(size * math.sqrt(share)) // 2
        sides.append(slice(max(centre - half, 0), min(centre + half, size)))
    return sides[0], sides[1]


def _check(part: Mixing, inputs: Any, labels: Tensor) -> None:
    accepted = "floats (N, ...)" if part.method == "mixup" else "images (N, C, H, W)"
    is_tensor = isinstance(inputs, Tensor) and inputs.is_floating_point()
    if not is_tensor or (part.method == "cutmix" and inputs.ndim != 4) or labels.ndim != 1:
        found = f"{inputs.dtype} {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else "several"
        raise InputError(
            "mixing.method",
            found=f"{part.method}, for inputs {found} and labels {tuple(labels.shape)}",
            accepted=f"{accepted} and labels (N,) for {part.method}",
        )
