"""Likelihood with a temperature for each row: value and derivatives in one pass.

With β_i = 1 / T_i and gaps g_ik = z_ik − max_k z_ik, the loss of a row is
ℓ_i = log Σ_k exp(β_i g_ik) − β_i g_iy, and ∂ℓ_i/∂β_i = Σ_k p_ik g_ik − g_iy. A map that
computes T_i from a few numbers of each row is differentiated by torch only on those. Each
evaluation reads the N x K logits once, where torch would hold five arrays of their size.

Legend: N rows, K classes.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.core.arrays import Integers

#: Elements of one chunk: two arrays of it fit into a second-level cache of 1 MiB.
_CHUNK = 50_000
#: Elements from which a pass is shared out to threads: below, starting them costs more.
_SHARED = 20 * _CHUNK

_Numbers = NDArray[np.floating[Any]]


class RowLikelihood:
    """The mean negative log-likelihood as a function of the temperatures of rows.

    Parameters
    ----------
    logits: (N, K), finite; a masked class is far enough below to have no probability.
    labels, weights: (N,); weights with mean 1.
    """

    def __init__(self, logits: _Numbers, labels: Integers, weights: _Numbers) -> None:
        self._gaps = logits - logits.max(axis=1, keepdims=True)
        self._own = self._gaps[np.arange(len(labels)), labels].astype(np.float64)
        self._share = weights / len(labels)

    def narrow(self) -> RowLikelihood:
        """Return the same with passes in float32, sums over rows still in float64."""
        copy = object.__new__(RowLikelihood)
        copy._gaps, copy._own, copy._share = self._gaps.astype(np.float32), self._own, self._share
        return copy

    def __call__(self, temperatures: torch.Tensor) -> torch.Tensor:
        """Return the mean over rows in nats, differentiable in the temperatures (N, 1)."""
        return _Mean.apply(1.0 / temperatures[:, 0], self)  # type: ignore[no-untyped-call]

    def value_and_slopes(self, beta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Return the mean and its derivative by the β (N,) of each row."""
        rows, classes = self._gaps.shape
        losses, slopes = np.empty(rows), np.empty(rows)
        step = max(1, _CHUNK // classes)

        def pass_over(starts: range) -> None:
            for i in starts:
                block = slice(i, i + step)
                gaps = self._gaps[block]
                odds = gaps * beta[block, None].astype(gaps.dtype)
                np.exp(odds, out=odds)
                total = odds.sum(axis=1)
                losses[block] = np.log(total)
                slopes[block] = np.vecdot(odds, gaps) / total

        threads = (os.cpu_count() or 1) if self._gaps.size >= _SHARED else 1
        if threads == 1:
            pass_over(range(0, rows, step))
        else:
            shares = [range(i * step, rows, threads * step) for i in range(threads)]
            with ThreadPoolExecutor(threads) as pool:  # NumPy lets go of the interpreter
                list(pool.map(pass_over, shares))
        losses -= beta * self._own
        slopes -= self._own
        return float(self._share @ losses), self._share * slopes


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, beta: torch.Tensor, likelihood: RowLikelihood) -> torch.Tensor:
        value, slopes = likelihood.value_and_slopes(beta.detach().numpy())
        ctx.save_for_backward(torch.from_numpy(slopes))
        return beta.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return gradient * slopes, None
