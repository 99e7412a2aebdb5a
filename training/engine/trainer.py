"""The steps of a training: gradients, clipping, optimiser, schedule, moving average, divergence."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recalib.losses.base import sum_dtype
from recalib.recipe import Recipe
from training.engine.averaging import WeightAverage
from training.engine.divergence import DivergedError
from training.engine.objective import LossSum
from training.engine.optimizer import learning_rate

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(kw_only=True)
class Trainer:
    """A network with its objective and optimiser, which takes steps by a recipe."""

    recipe: Recipe
    fabric: Fabric
    #: The plain network, and the same network wrapped by Fabric.
    model: nn.Module
    network: nn.Module
    objective: LossSum
    optimiser: Optimizer
    #: Sum of the objective over the steps of this epoch, on the network's device: reading it makes
    #: an accelerator wait.
    loss_sum: Tensor = field(init=False)
    #: The moving average of the weights, where the recipe has one.
    average: WeightAverage | None = field(init=False)

    def __post_init__(self) -> None:
        self.loss_sum = torch.zeros((), dtype=sum_dtype(self.fabric.device)).to(self.fabric.device)
        decay = self.recipe.ema_decay
        self.average = None if decay is None else WeightAverage(self.model, decay)

    def schedule(self, epoch: float, step: float) -> float:
        """Set the learning rate of a step, and return it; as `learning_rate`."""
        rate = learning_rate(self.recipe.optimiser, epoch, self.recipe.epochs, step)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        return rate

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the objective of a step, or of a part of it."""
        self.fabric.backward(loss)
        self.loss_sum += loss.detach()

    def step(self) -> None:
        """Change the weights by the gradients of a step."""
        if (norm := self.recipe.clip_norm) is not None:
            # As `clip_grad_norm_` of torch, after the scaling of mixed precision is undone. A
            # gradient that is not finite is no error here: the check would make an accelerator
            # wait.
            clip = self.fabric.clip_gradients
            clip(self.network, self.optimiser, max_norm=norm, error_if_nonfinite=False)
        self.optimiser.step()
        self.optimiser.zero_grad()
        if self.average is not None:
            self.average.update()

    def averaged(self) -> AbstractContextManager[None]:
        """Return a context in which the network has the moving average of its weights, if any."""
        return nullcontext() if self.average is None else self.average.applied()

    def read_loss_sum(self, at: str) -> float:
        """Return the sum of the objective over the steps of this epoch.

        Raises
        ------
        DivergedError: it is not finite; the message has the place `at`.
        """
        loss_sum = float(self.loss_sum)
        if not math.isfinite(loss_sum):
            raise DivergedError(f"an objective that is not finite {at}")
        return loss_sum
