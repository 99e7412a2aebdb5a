"""Residual networks for small images."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from recalib.core.options import check_option
from training.models.base import initialise


class ResNet(nn.Module):
    """ResNet for CIFAR: three stages of plain blocks, 6n + 2 layers.

    Images (N, channels, H, W), of any size; 32x32 in the papers. Shortcuts that change the size
    take every second pixel and pad channels with zeros (option A), so that shortcuts have no
    weights: 0.27 million at depth 20, 1.73 at 110.

    Options: `depth` 6n + 2 ≥ 8; `width`, channels of the first stage; `channels` of the images.
    `block` is ``pre`` for the pre-activation network of He et al., ECCV 2016.

    Source: He et al., Deep residual learning for image recognition, CVPR 2016, section 4.2.
    """

    def __init__(
        self,
        classes: int,
        *,
        depth: int = 20,
        width: int = 16,
        channels: int = 3,
        block: Literal["post", "pre"] = "post",
    ) -> None:
        super().__init__()
        legal = depth >= 8 and (depth - 2) % 6 == 0
        check_option("depth", depth, legal, "8, 14, 20, ... (6n + 2)")
        block_class = _Block if block == "post" else _PreBlock
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.first = nn.BatchNorm2d(width) if block == "post" else nn.Identity()
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2)]
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    block_class(inner, outer, stride),
                    *(block_class(outer, outer, 1) for _ in range((depth - 2) // 6 - 1)),
                )
                for inner, outer, stride in sizes
            )
        )
        self.last = nn.BatchNorm2d(4 * width) if block == "pre" else nn.Identity()
        self.post = block == "post"
        self.head = nn.Linear(4 * width, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(self.stem(images))
        x = self.stages(x.relu() if self.post else x)
        x = self.last(x)
        return self.head((x if self.post else x.relu()).mean(dim=(2, 3)))


class _Block(nn.Module):
    """Two convolutions, each followed by normalisation, plus the input."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.stride, self.more = stride, outer - inner

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        return torch.relu(y + _shortcut(x, self.stride, self.more))


class _PreBlock(nn.Module):
    """Two convolutions, each preceded by normalisation, plus the input."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.stride, self.more = stride, outer - inner

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv2(self.norm2(self.conv1(self.norm1(x).relu())).relu())
        return y + _shortcut(x, self.stride, self.more)


def _shortcut(x: Tensor, stride: int, channels: int) -> Tensor:
    """Return every `stride`-th pixel, with `more` zero channels, half before and half after."""
    if stride == 1 and not channels:
        return x
    x = x[:, :, ::stride, ::stride]
    return functional.pad(x, (0, 0, 0, 0, channels // 2, channels - channels // 2))


class ResNetBottleneck(nn.Module):
    """ResNet with bottlenecks, as for ImageNet, for small images.

    The first convolution is 3x3 with stride 1, without pooling after it. There are four stages of
    64 to 512 channels, times 4 at their ends. Shortcuts that change the size are convolutions.
    Papers 000, 001 and 004 name ResNet-50 and 101 on CIFAR without details; this is the common
    form for CIFAR, with 23.5 million weights at depth 50.

    Options: `depth` 50, 101 or 152; `width` of the first stage; `channels` of the images.

    Source: He et al., CVPR 2016, table 1.
    """

    def __init__(
        self,
        classes: int,
        *,
        depth: Literal[50, 101, 152] = 50,
        width: int = 64,
        channels: int = 3,
    ) -> None:
        super().__init__()
        blocks = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}[depth]
        self.stem = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        stages: list[nn.Module] = []
        inner = width
        for stage, count in enumerate(blocks):
            middle = width * 2**stage
            for place in range(count):
                stride = 2 if stage and not place else 1
                stages.append(_Bottleneck(inner, middle, stride))
                inner = 4 * middle
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inner, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(torch.relu(self.norm(self.stem(images))))
        return self.head(x.mean(dim=(2, 3)))


class _Bottleneck(nn.Module):
    """Convolutions 1x1, 3x3 and 1x1, each normalised, plus the input."""

    def __init__(self, inner: int, middle: int, stride: int) -> None:
        super().__init__()
        outer = 4 * middle
        self.body = nn.Sequential(
            nn.Conv2d(inner, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, outer, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))
