"""`python -m benchmarks.classwise_losses`: figures 1, 3 and 4 of paper 003, on ResNet-110.

The published validation logits of CIFAR-10; the paper has WideResNet-32 in figure 3.

- Figure 3: an extra linear layer, which starts at the identity, learns from the losses of the three
  classes with the largest mean losses alone (eq. 2). Points A and B have equal total losses.
- Figure 1: over those epochs, the correlation of the ECE with the total loss, and with the
  standard deviation of class-wise losses.
- Figure 4: class temperatures by Adam at a rate of .02, without a schedule, by four objectives.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import recalib
from benchmarks.data import folder_with
from benchmarks.paper_tables import load
from benchmarks.training.table import markdown_table
from recalib.files import write_atomically
from recalib.objectives.classwise_scaled_nll import ClasswiseScaledNll
from recalib.objectives.focal import Focal
from recalib.objectives.label_smoothing import LabelSmoothing
from recalib.objectives.nll import NegativeLogLikelihood
from recalib.ops.torch_ops import TorchOps

_EPOCHS, _TOP, _RATE = 300, 3, 0.02


@dataclass(frozen=True)
class Epoch:
    """Mean loss of each class, their sum and standard deviation, and ECE in percent."""

    number: int
    losses: tuple[float, ...]
    total: float
    deviation: float
    ece: float


def state(number: int, logits: Tensor, labels: Tensor) -> Epoch:
    """Return what figures 3 and 4 show of logits (N, K)."""
    losses = _class_losses(logits.detach(), labels)
    ece = recalib.evaluate(labels.numpy(), logits=logits.detach().numpy(), metrics=("ece",))["ece"]
    values = tuple(float(loss) for loss in losses)
    return Epoch(number, values, sum(values), float(losses.std(correction=0)), 100 * float(ece))


def _class_losses(logits: Tensor, labels: Tensor) -> Tensor:
    nll = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    sums = torch.zeros(logits.shape[1], dtype=nll.dtype).index_add(0, labels, nll)
    return sums / labels.bincount(minlength=logits.shape[1]).clamp_min(1)


def toy(
    logits: NDArray[np.floating], labels: NDArray[np.int64], epochs: int = _EPOCHS
) -> list[Epoch]:
    """Return the states of the toy experiment: gradient descent on eq. 2, all rows in each step."""
    z, y = torch.from_numpy(np.asarray(logits, dtype=np.float64)), torch.from_numpy(labels)
    layer = torch.eye(z.shape[1], dtype=torch.float64, requires_grad=True)
    chosen = _class_losses(z, y).topk(_TOP).indices
    rows = torch.isin(y, chosen)
    optimiser = torch.optim.Adam([layer], lr=0.002)
    states = [state(0, z, y)]
    for epoch in range(1, epochs + 1):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(z[rows] @ layer, y[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        states.append(state(epoch, z @ layer, y))
    return states


def equal_totals(epochs: list[Epoch]) -> tuple[Epoch, Epoch]:
    """Return A before and B after the least total loss, whose totals are nearly equal."""
    least = min(range(len(epochs)), key=lambda number: epochs[number].total)
    target = min(epochs[0].total, epochs[-1].total)

    def nearest(part: list[Epoch]) -> Epoch:
        return min(part, key=lambda epoch: abs(epoch.total - target))

    return nearest(epochs[: least + 1]), nearest(epochs[least:])


def correlation(epochs: list[Epoch]) -> tuple[str, str]:
    """Return Pearson's r of the ECE with the total loss, and with the deviation."""
    eces, totals, deviations = zip(*((e.ece, e.total, e.deviation) for e in epochs), strict=True)
    return f"{np.corrcoef(eces, totals)[0, 1]:+.3f}", f"{np.corrcoef(eces, deviations)[0, 1]:+.3f}"


def trained(
    objective: str, logits: Tensor, labels: Tensor, shown: Sequence[int] = (100, 300, 1000)
) -> list[Epoch]:
    """Return the states of class temperatures before the first step, and after those of `shown`."""
    forms = {
        "cross-entropy": NegativeLogLikelihood(), "label smoothing": LabelSmoothing(),
        "focal loss": Focal(), "class-wise scaling": ClasswiseScaledNll(),
    }  # fmt: skip
    form, ops = forms[objective], TorchOps(torch.float64)
    temperatures = torch.ones(logits.shape[1], dtype=torch.float64, requires_grad=True)
    weights = torch.ones(len(labels), dtype=torch.float64)
    optimiser = torch.optim.Adam([temperatures], lr=_RATE)
    states = [state(0, logits, labels)]
    for step in range(1, max(shown) + 1):
        optimiser.zero_grad()
        form.loss(ops, ops.log_softmax(logits / temperatures), labels, weights).backward()
        optimiser.step()
        if step in shown:
            states.append(state(step, logits / temperatures, labels))
    return states


def _rows(epochs: list[Epoch]) -> list[tuple[str, ...]]:
    return [(f"{e.number}", f"{e.total:.3f}", f"{e.deviation:.4f}", f"{e.ece:.2f}") for e in epochs]


def main() -> None:
    """Compute all, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classwise_losses")
    parser.add_argument("--output", type=Path, default=Path("classwise_losses.md"))
    output = parser.parse_args().output
    torch.set_num_threads(1)
    validation, _ = load(folder_with("resnet110-cifar10-val.npz"))
    epochs = toy(validation.logits, validation.labels)
    points = equal_totals(epochs)
    heads = ("epoch", "total loss", "deviation", "ECE")
    parts = ["# Class-wise losses, paper 003", "`python -m benchmarks.classwise_losses`"]
    parts += ["ResNet-110 on CIFAR-10, 5,000 validation rows. In nats; ECE in percent."]
    parts += [
        "## Figure 3: points A and B of equal total losses",
        markdown_table(heads, _rows(list(points))),
    ]
    parts += ["## Figure 1: correlation with the ECE over the epochs of figure 3"]
    until = [epoch for epoch in epochs if epoch.number <= points[1].number]
    correlations = [("up to B", *correlation(until)), ("all", *correlation(epochs))]
    parts += [markdown_table(("epochs", "total loss", "deviation"), correlations)]
    logits, labels = (
        torch.from_numpy(validation.logits).double(),
        torch.from_numpy(validation.labels),
    )
    for objective in ("cross-entropy", "label smoothing", "focal loss", "class-wise scaling"):
        parts += [
            f"## Figure 4: {objective}",
            markdown_table(heads, _rows(trained(objective, logits, labels))),
        ]
    write_atomically(output, ("\n\n".join(parts) + "\n").encode())


if __name__ == "__main__":
    main()
