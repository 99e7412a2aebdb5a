"""Wide residual networks."""

from __future__ import annotations

from torch import Tensor, nn

from recalib.core.options import check_option
from training.models.base import initialise


class WideResNet(nn.Module):
    """A residual network of few and wide pre-activation blocks, 6n + 4 layers.

    Images (N, channels, H, W). Shortcuts that change size are 1x1 convolutions of the normalised
    input. Depth 28 and widening 10 have 36.5 million weights.

    Options: `depth` 6n + 4 ≥ 10; `widen`, times 16 channels in the first stage; `dropout` in
    [0, 1) between the convolutions of a block; `channels` of the images.

    Source: Zagoruyko and Komodakis, Wide residual networks, BMVC 2016, table 1. Paper 000 trains
    28-10, paper 004 26-10, which is not 6n + 4: take 28.
    """

    def __init__(
        self,
        classes: int,
        *,
        depth: int = 28,
        widen: int = 10,
        dropout: float = 0.0,
        channels: int = 3,
    ) -> None:
        super().__init__()
        legal = depth >= 10 and (depth - 4) % 6 == 0
        check_option("depth", depth, legal, "10, 16, 22, ... (6n + 4)")
        check_option("dropout", dropout, 0 <= dropout < 1, "0 to below 1")
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        blocks, inner = [], 16
        for stage in range(3):
            outer = 16 * widen * 2**stage
            for place in range((depth - 4) // 6):
                blocks.append(_Block(inner, outer, 2 if stage and not place else 1, dropout))
                inner = outer
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.BatchNorm2d(inner)
        self.head = nn.Linear(inner, classes)
        initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm(self.blocks(self.stem(images))).relu()
        return self.head(x.mean(dim=(2, 3)))


class _Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride > 1 or inner != outer:
            self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        before = self.norm1(x).relu()
        y = self.conv2(self.dropout(self.norm2(self.conv1(before)).relu()))
        return y + (x if self.shortcut is None else self.shortcut(before))
