"""The model interface.

``make(classes, **options)`` builds a model. It is a class or a function whose annotations are the
types of the options; `training.models.build` checks names and types against them. It returns a
torch module that

- maps a batch of `training.data` inputs to logits (N, K), or (N, K, H, W) for dense predictions;
- has a last layer, which computes the logits (`training.models.head`). Fine-tuning may train only
  this layer, and the metrics of an epoch include the norm of its weights.

Torch's generator draws the weights, so that a seed determines them. Nothing is downloaded.

The architectures are written here because the maintained collection of plain torch networks
(pytorchcv) requires torchvision, a second large compiled package, and has networks for ImageNet and
CIFAR but none for text, trees or dense predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import nn

#: ``make(classes, **options)``.
Make: TypeAlias = Callable[..., nn.Module]


def initialise(network: nn.Module) -> None:
    """Initialise convolutions by He et al., ICCV 2015, eq. 10, fan out: unit variance forward."""
    for module in network.modules():
        # Tensors on the meta device, as in `check_size`, have no values.
        if isinstance(module, nn.Conv2d) and not module.weight.is_meta:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
