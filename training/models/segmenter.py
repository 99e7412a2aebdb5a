"""A small network for semantic segmentation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.base import initialise


class Segmenter(nn.Module):
    """A small U-Net: down to a quarter of the size and up again, with skip connections.

    Images (N, channels, H, W) to logits (N, K, H, W). Sizes need not be multiples of 4.

    Options: `width`, channels at full size; `channels` of the images.

    Source: the architecture of Ronneberger et al., U-Net, MICCAI 2015, with two levels.
    """

    def __init__(self, classes: int, *, width: int = 16, channels: int = 3) -> None:
        super().__init__()
        self.down1 = _convolutions(channels, width)
        self.down2 = _convolutions(width, 2 * width)
        self.bottom = _convolutions(2 * width, 4 * width)
        self.up2 = _convolutions(6 * width, 2 * width)
        self.up1 = _convolutions(3 * width, width)
        self.head = nn.Conv2d(width, classes, 1)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        fine = self.down1(images)
        middle = self.down2(functional.max_pool2d(fine, 2, ceil_mode=True))
        x = self.bottom(functional.max_pool2d(middle, 2, ceil_mode=True))
        x = self.up2(torch.cat([_resize_like(x, middle), middle], dim=1))
        x = self.up1(torch.cat([_resize_like(x, fine), fine], dim=1))
        return self.head(x)


def _convolutions(inner: int, outer: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
        nn.Conv2d(outer, outer, 3, padding=1, bias=False),
        nn.BatchNorm2d(outer),
        nn.ReLU(),
    )


def _resize_like(x: Tensor, like: Tensor) -> Tensor:
    return functional.interpolate(x, size=like.shape[2:])
