"""`python -m benchmarks.training.first_steps`: which losses let a network begin to learn, and why.

Selective risk: its slope where every class is as likely as every other, and each row's label is
made a little likelier, which is all that a network can hope for. Where the slope is not below 0,
that prediction is a local minimum, for any data. Kernels: the length of the gradient of β
times `kde_ece` in random logits of a standard deviation of .3 over that of cross-entropy. Above 1,
the error of a batch's few rows outweighs their labels.
"""

from __future__ import annotations

from itertools import product
from typing import get_args

import torch
from rich.console import Console
from rich.table import Table

from recalib.losses import LOSSES
from recalib.losses.confidence_scores import Confidence

_ROWS = 100


def slope(classes: int, confidence: Confidence, nu: float) -> float:
    """Return selective risk's slope at equal probabilities, towards the rows' labels.

    Row i of N moves at a speed of i/N, so that no two are as sure.
    """
    loss = LOSSES["selective_risk"](confidence=confidence, nu=nu)
    labels = torch.arange(_ROWS) % classes
    speeds = torch.arange(1, _ROWS + 1, dtype=torch.float64) / _ROWS
    towards = torch.nn.functional.one_hot(labels, classes) * speeds[:, None]
    # Not 0: there all scores are equal, and no row is below the threshold.
    step = torch.tensor(1e-6, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(loss(step * towards, labels), step)
    return float(derivative)


def outweighs(rows: int, classes: int, bandwidth: float, beta: float = 0.3) -> float:
    """Return how much longer the gradient of beta times `kde_ece` is than cross-entropy's."""
    generator = torch.Generator().manual_seed(0)
    logits = 0.3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (rows,), generator=generator)
    logits.requires_grad_()
    kernels, usual = (
        torch.autograd.grad(loss(logits, labels), logits)[0].norm()
        for loss in (LOSSES["kde_ece"](bandwidth=bandwidth), LOSSES["cross_entropy"]())
    )
    return float(beta * kernels / usual)


def main() -> None:
    """Print both."""
    console = Console(width=100)
    scores: tuple[Confidence, ...] = get_args(Confidence)
    widths = (0.01, 0.1, 0.2, 0.5, 1.0)
    table = Table("classes", "confidence", *(f"nu {nu:g}" for nu in widths))
    for classes, score in product((10, 100), scores):
        cells = [f"{slope(classes, score, nu):+.3f}" for nu in widths]
        table.add_row(f"{classes}", score, *cells)
    console.print("slope of selective_risk towards the labels, where nothing is known", table)
    bandwidths = (0.001, 0.003, 0.01, 0.03, 0.1)
    table = Table("rows", "classes", *(f"h {bandwidth:g}" for bandwidth in bandwidths))
    for rows, classes in product((64, 128), (10, 100)):
        cells = [f"{outweighs(rows, classes, bandwidth):.2f}" for bandwidth in bandwidths]
        table.add_row(f"{rows}", f"{classes}", *cells)
    console.print("gradient of .3 kde_ece over cross_entropy's", table)


if __name__ == "__main__":
    main()
