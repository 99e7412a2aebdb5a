"""The gradient of the first step of a training, in one process or, under torchrun, in several.

torchrun --nproc-per-node 2 -m tests.training.engine.gradients FILE.npz
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from recalib.recipe import Recipe
from tests.training.engine.test_dense import VOID, scenes
from tests.training.engine.tiny import Memory, Onlooker
from training.data import Split, Splits
from training.data.arrays import Array
from training.engine.loop import train

__all__ = ["CASES", "PARTS", "gradients"]

_LOSS = {"secondary": "mbls", "secondary_options": {"margin": 0.0}}
#: The network and the objective of each case.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "class weights": ("Rows", {"options": {"weight": [0.1, 1.0, 7.0]}}),
    "masked classes": ("Masked", {"options": {"weight": [0.1, 1.0, 7.0]}, **_LOSS}),
    "void pixels": ("Pixels", _LOSS),
}
PARTS = (1, 4)
#: Of the networks; this module is `__main__` under torchrun.
_MODULE = "tests.training.engine.gradients"


class Rows(nn.Module):
    """A linear model in float64."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(2, classes, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(inputs[:, :2].double())
        return logits


class Masked(Rows):
    """Each row lacks the class that its third feature names, if this is one.

    Logits of predictions are finite, as the engine expects.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        logits = super().forward(inputs)
        classes = torch.arange(logits.shape[1])
        return logits.masked_fill(classes == inputs[:, 2:], -torch.inf if self.training else -1e3)


class Pixels(nn.Module):
    """A convolution in float64."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Conv2d(1, classes, 3, padding=1, dtype=torch.float64)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(images.double())
        return logits


def gradients() -> dict[str, NDArray[np.float64]]:
    """Return the gradient of a step on all rows, by case and number of parts, and its network."""
    return {
        f"{case}, {parts}": _gradient(network, loss, _splits(case), parts)
        for case, (network, loss) in CASES.items()
        for parts in PARTS
    }


def _gradient(
    network: str, loss: dict[str, Any], splits: Splits, parts: int
) -> NDArray[np.float64]:
    first: list[Tensor] = []

    def keep(optimiser: Optimizer, *_: Any) -> None:
        parameters = optimiser.param_groups[0]["params"]
        first.append(torch.cat([parameter.grad.flatten() for parameter in parameters]))

    recipe = {
        "data": {"source": "arrays"}, "model": {"name": f"{_MODULE}:{network}"},
        "epochs": 1, "batch_size": len(splits.train), "device": "cpu", "loss": loss,
        "accumulate": parts,
    }  # fmt: skip
    handle = register_optimizer_step_pre_hook(keep)
    try:
        train(Recipe.of(recipe), splits, Memory(), Onlooker())
    finally:
        handle.remove()
    (gradient,) = first
    assert gradient.dtype == torch.float64
    return gradient.numpy()


def _splits(case: str) -> Splits:
    """Return data whose parts have different weights, masked classes or void pixels."""
    if case == "void pixels":
        arrays = [scenes(count, seed) for seed, count in enumerate((17, 4, 4))]
        arrays[0][1][::2, :6] = VOID
        facts, void = {"channels": 1}, VOID
    else:
        rng = np.random.default_rng(3)
        labels = [rng.integers(0, 3, rows) for rows in (117, 60, 60)]
        arrays = [(rng.normal(size=(len(y), 3)).astype(np.float32), y) for y in labels]
        for inputs, y in arrays:
            inputs[:, 2] = np.where(rng.random(len(y)) < 0.5, (y + 1) % 3, -1)
        facts, void = {"features": 3}, None
    parts = [Split.with_all_rows(Array(inputs), labels) for inputs, labels in arrays]
    return Splits(*parts, classes=3, facts=facts, ignore_index=void)


def main() -> None:
    """Write the gradients that this process has after the sum over all."""
    torch.set_num_threads(1)
    result = gradients()
    if distributed.get_rank() == 0:
        np.savez(Path(sys.argv[1]), **result)  # type: ignore[arg-type]
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
