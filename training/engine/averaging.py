"""The exponential moving average of a network's weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """The exponential moving average of a network, w̄ ← d·w̄ + (1 − d)·w after each step.

    It starts from the initial weights. Running statistics are averaged too, as for
    `AveragedModel(use_buffers=True)` of torch, whose counter makes an accelerator wait in each
    step; its function is used here without the counter. Integer buffers are those of the network.

    Parameters
    ----------
    model: the network, on its device.
    decay: d in (0, 1); the average is over about 1 / (1 − d) steps.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(model)
        self._model = model
        self._update = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]

    def update(self) -> None:
        """Include the current weights of the network."""
        pairs = self._pairs()
        floats = [pair for pair in pairs if pair[0].is_floating_point()]
        self._update([average for average, _ in floats], [weight for _, weight in floats], 0)
        for average, weight in pairs:
            if not average.is_floating_point():
                average.copy_(weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the network the averages, and its own weights back afterwards."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        with torch.no_grad():
            for average, weight in self._pairs():
                current = weight.clone()
                weight.copy_(average)
                average.copy_(current)

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return each average with its tensor of the network."""
        averages, weights = (
            [tensor.detach() for tensor in chain(module.parameters(), module.buffers())]
            for module in (self.module, self._model)
        )
        return list(zip(averages, weights, strict=True))
