"""Which losses let a network begin to learn, from equal probabilities and from small logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.training.objectives import OBJECTIVES
from recalib.losses import LOSSES

_ROWS = 100


def slope(classes: int, nu: float) -> float:
    """Return selective risk's slope at equal probabilities, towards the rows' labels.

    Each row's label is made a little likelier, which is all that a network can hope for. Where the
    slope is not below 0, equal probabilities are a local minimum, for any data. Row i of N moves at
    a speed of i/N, so that no two are as sure.
    """
    loss = LOSSES["selective_risk"](confidence="msp", nu=nu)
    labels = torch.arange(_ROWS) % classes
    speeds = torch.arange(1, _ROWS + 1, dtype=torch.float64) / _ROWS
    towards = torch.nn.functional.one_hot(labels, classes) * speeds[:, None]
    # Not 0: there all scores are equal, and no row is below the threshold.
    step = torch.tensor(1e-6, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(loss(step * towards, labels), step)
    return float(derivative)


def outweighs(bandwidth: float, beta: float = 0.3) -> float:
    """Return how much longer the gradient of beta times `kde_ece` is than cross-entropy's.

    64 rows of ten classes, random logits of a standard deviation of .3. Above 1, the error of a
    batch's few rows outweighs their labels.
    """
    generator = torch.Generator().manual_seed(0)
    logits = 0.3 * torch.randn(64, 10, generator=generator, dtype=torch.float64)
    labels = torch.randint(10, (64,), generator=generator)
    logits.requires_grad_()
    kernels, usual = (
        torch.autograd.grad(loss(logits, labels), logits)[0].norm()
        for loss in (LOSSES["kde_ece"](bandwidth=bandwidth), LOSSES["cross_entropy"]())
    )
    return float(beta * kernels / usual)


@pytest.mark.parametrize(("classes", "nu"), [(10, 0.1), (10, 1.0), (50, 0.02)])
def test_selective_risk_slope_at_uniform_predictions(classes: int, nu: float) -> None:
    """By hand: below the threshold β' ln K − β for each unit that a row gets surer, above it −β."""
    # The bin of 1/K: all rows are in it.
    centre = (np.floor(15 / classes) + 0.5) / 15
    share = 1 / (1 + np.exp(-(1 / classes - centre) / nu))
    weight, pull = -np.log(1 - share), share / nu * np.log(classes)
    speeds = np.arange(1, 101) / 100 * (1 - 1 / classes)
    rows = np.where(np.arange(100) < 90, pull / classes - weight, -weight)
    assert slope(classes, nu) == pytest.approx((rows * speeds).mean(), rel=1e-4)


def test_network_learns_with_every_objective() -> None:
    """Not so the paper's ν, and the bandwidth of the source's example, with ten classes."""
    nu = OBJECTIVES["selective risk"].options["nu"]
    assert slope(10, 0.1) > 0 > slope(10, nu)
    bandwidth = OBJECTIVES["CE + KDE"].secondary_options["bandwidth"]
    assert outweighs(0.001) > 2
    assert outweighs(bandwidth) < 1
    assert outweighs(0.01, beta=1.0) > 2
    assert outweighs(LOSSES["kde_ece"]().bandwidth, beta=1.0) < 0.6
