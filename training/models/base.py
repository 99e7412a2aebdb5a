"""What a model of this family promises.

A model is built by ``make(classes, **options)``, a class or a function whose annotations are the
options' types; `training.models.build` checks names and types against them. What it returns is a
torch module

- called with a batch of inputs as `training.data` gives them, that returns logits (N, K), or
  (N, K, H, W) where every place has a class;
- whose attribute ``head`` is the last layer, the one that makes logits: fine-tuning may train it
  alone, and papers look at its weights.

Weights are drawn by torch's generator, so that a seed decides them. Nothing is downloaded.

Architectures are written here: the one well-kept collection of plain torch networks (pytorchcv)
asks for torchvision, a second large compiled package, and has the networks of ImageNet and of
CIFAR but none for text, trees or places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import nn

__all__ = ["Make", "initialise"]

#: ``make(classes, **options)``.
Make: TypeAlias = Callable[..., nn.Module]


def initialise(network: nn.Module) -> None:
    """Draw convolutions as He et al. do (ICCV 2015, eq. 10, fan out): unit variance forward."""
    for module in network.modules():
        # Shapes alone, as `check_size` makes them, have nothing to draw.
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
