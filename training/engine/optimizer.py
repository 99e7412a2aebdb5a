"""The optimiser and its learning rate schedule."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from recalib.recipe import Optimiser

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def optimiser_for(
    part: Optimiser, parameters: Iterable[nn.Parameter], fabric: Fabric | None = None
) -> Optimizer:
    """Return the optimiser of a recipe for these parameters; on a GPU, a step is one kernel."""
    first, second = part.betas or (0.9, 0.999)
    momentum = 0.9 if part.momentum is None else part.momentum
    fused = fabric is not None and fabric.device.type == "cuda"
    # Adagrad of torch has no such kernel, and Fabric does not clip the scaled gradients of fp16.
    plain = part.name == "adagrad" or (fabric and fabric.strategy.precision.state_dict())
    options = {"fused": True} if fused and not plain else {}
    factories: dict[str, Callable[..., Optimizer]] = {
        "sgd": partial(SGD, momentum=momentum, nesterov=part.nesterov),
        "adagrad": Adagrad,
        "adam": partial(Adam, betas=(first, second)),
        "adamw": partial(AdamW, betas=(first, second)),
    }
    factory = factories[part.name]
    return factory(parameters, lr=part.rate, weight_decay=part.weight_decay, **options)


def learning_rate(part: Optimiser, epoch: float, epochs: int, step: float) -> float:
    """Return the learning rate of a step.

    Parameters
    ----------
    epoch: progress before the step, in epochs, with fractions.
    epochs: number of epochs of the run.
    step: length of the step in epochs.
    """
    if epoch + step <= part.warmup_epochs:
        return part.rate * (epoch + step) / part.warmup_epochs
    if part.schedule == "cosine":
        progress = (epoch - part.warmup_epochs) / max(epochs - part.warmup_epochs, step)
        return part.rate * 0.5 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
    # Rounding must not delay a milestone by a step.
    count = bisect_right(sorted(part.milestones), epoch + 1e-9)
    return float(part.rate * part.factor**count)
