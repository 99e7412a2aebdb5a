"""Densely connected networks for small images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recalib.core.options import check_option
from training.models.base import initialise


class _DenseBlocks(nn.Module):
    """Blocks in which each layer receives all previous layers, with a transition between two.

    With a bottleneck, layers have one, and transitions halve the channels.
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        width: int,
        blocks: Sequence[int],
        growth: int,
        bottleneck: int = 0,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1, bias=False)]
        for block, count in enumerate(blocks):
            if block:
                outer = width // 2 if bottleneck else width
                layers.append(_transition(width, outer))
                width = outer
            for _ in range(count):
                layers.append(_Layer(width, growth, bottleneck))
                width += growth
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean(dim=(2, 3)))


class DenseNet(_DenseBlocks):
    """DenseNet for CIFAR: three blocks in which each layer receives all previous layers.

    Images (N, channels, H, W). 3n + 4 layers; each adds `growth` channels. Depth 40 with growth 12
    has 1.0 million weights; paper 003's DenseNet-40.

    Options: `depth` 3n + 4 ≥ 7; `growth`; `channels` of the images.

    Source: Huang et al., Densely connected convolutional networks, CVPR 2017, section 3 and
    table 2's first rows.
    """

    def __init__(
        self, classes: int, *, depth: int = 40, growth: int = 12, channels: int = 3
    ) -> None:
        legal = depth >= 7 and (depth - 4) % 3 == 0
        check_option("depth", depth, legal, "7, 10, 13, ... (3n + 4)")
        super().__init__(classes, channels, 16, ((depth - 4) // 3,) * 3, growth)


class DenseNetBottleneck(_DenseBlocks):
    """DenseNet-121 for small images: bottlenecks, and transitions that halve the channels.

    The first convolution is 3x3 with stride 1, without pooling after it; paper 004 names the
    network without details. 7.0 million weights with growth 32.

    Options: `growth`; `channels` of the images.

    Source: Huang et al., CVPR 2017, table 1.
    """

    def __init__(self, classes: int, *, growth: int = 32, channels: int = 3) -> None:
        super().__init__(classes, channels, 2 * growth, (6, 12, 24, 16), growth, 4 * growth)


class _Layer(nn.Module):
    """Append `growth` channels to the input channels."""

    def __init__(self, width: int, growth: int, bottleneck: int) -> None:
        super().__init__()
        steps: list[nn.Module] = [nn.BatchNorm2d(width), nn.ReLU()]
        if bottleneck:
            steps += [
                nn.Conv2d(width, bottleneck, 1, bias=False),
                nn.BatchNorm2d(bottleneck),
                nn.ReLU(),
            ]
        steps.append(nn.Conv2d(bottleneck or width, growth, 3, padding=1, bias=False))
        self.body = nn.Sequential(*steps)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], dim=1)


def _transition(inner: int, outer: int) -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, outer, 1, bias=False), nn.AvgPool2d(2)
    )
