"""The optimiser, and its learning rate as a function of how many epochs are done."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from recalib.recipe import Optimiser

__all__ = ["learning_rate", "optimiser_for", "set_rate"]


def optimiser_for(part: Optimiser, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimiser that a recipe asks for, of these parameters."""
    rate, decay = part.rate, part.weight_decay
    if part.name == "sgd":
        momentum = 0.9 if part.momentum is None else part.momentum
        return SGD(parameters, rate, momentum, weight_decay=decay, nesterov=part.nesterov)
    if part.name == "adagrad":
        return Adagrad(parameters, rate, weight_decay=decay)
    kind = AdamW if part.name == "adamw" else Adam
    first, second = part.betas or (0.9, 0.999)
    return kind(parameters, rate, (first, second), weight_decay=decay)


def learning_rate(part: Optimiser, epoch: float, epochs: int, step: float) -> float:
    """Return the rate of a step.

    Parameters
    ----------
    epoch: epochs done before it, with fractions.
    epochs: of the whole run.
    step: its own length in epochs.
    """
    if epoch + step <= part.warmup_epochs:
        return part.rate * (epoch + step) / part.warmup_epochs
    if part.schedule == "cosine":
        past = (epoch - part.warmup_epochs) / max(epochs - part.warmup_epochs, step)
        return part.rate * 0.5 * (1 + math.cos(math.pi * min(max(past, 0.0), 1.0)))
    # A little early rather than a step late.
    passed = bisect_right(sorted(part.milestones), epoch + 1e-9)
    return float(part.rate * part.factor**passed)


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Have the next step take this rate."""
    for group in optimiser.param_groups:
        group["lr"] = rate
