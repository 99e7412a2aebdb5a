"""What the Newton solvers need of the likelihood, summed over chunks of rows on a device.

The solvers are those of arrays in memory. `chunked_moment_sums` is what `recalib.fitting.newton`
minimises; `LinearChunkSums` are the `LinearSums` of `recalib.fitting.linear_nll`.

Legend: N rows, n rows of a chunk, K classes, D features of a class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from recalib.fitting.linear_form import LinearForm
from recalib.fitting.linear_nll import MAX_BLOCKS, Design, DiagonalDesign, FullDesign
from recalib.fitting.row_chunks import RowChunks

Numbers = NDArray[np.float64]


def chunked_moment_sums(
    chunks: RowChunks,
    scale: float,
    beta: float,
    masked_gap: float,
    dtype: type[np.floating[Any]],
) -> Numbers:
    """Return what `recalib.fitting.newton.moment_sums` does.

    Parameters
    ----------
    masked_gap: the logit of a masked class relative to the row's largest, in units of `scale`.
    dtype: float32 or float64, of the passes over the rows.
    """

    def of_chunk(z: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        gaps = (z - z.amax(dim=1, keepdim=True)).clamp_(min=masked_gap * scale)
        p = torch.exp(gaps * (beta / scale))
        total = p.sum(dim=1)
        p *= gaps
        mean = p.sum(dim=1) / total
        square = (p * gaps).sum(dim=1) / total
        label_gaps = gaps.gather(1, y[:, None])[:, 0]
        losses = torch.log(total) - label_gaps * (beta / scale)
        terms = torch.stack([losses, mean - label_gaps, square - mean * mean])
        return terms.double() @ w.double()

    sums = chunks.total(of_chunk, torch.float32 if dtype == np.float32 else torch.float64)
    sums /= np.array([1, scale, scale**2])
    return sums


@dataclass
class _Chunk:
    """Features x and probabilities p (n, K), labels and weights (n,) of a chunk."""

    x: torch.Tensor
    p: torch.Tensor
    #: log p.
    logs: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor


class LinearChunkSums:
    """The sums of a linear map; each pass computes probabilities again.

    Parameters
    ----------
    temperature: of the features, and the unit of slopes.
    passes_masks: as of the map: otherwise a masked class has the logit of the row's least.
    """

    def __init__(
        self, chunks: RowChunks, form: LinearForm, temperature: float, *, passes_masks: bool
    ) -> None:
        self._chunks, self._form, self._design = chunks, form, form.design
        self._temperature, self._passes_masks = temperature, passes_masks

    def around(self, theta: Numbers) -> tuple[float, Numbers, Numbers]:
        def of_chunk(chunk: _Chunk) -> torch.Tensor:
            d = chunk.p * (1 - chunk.p) * chunk.weights[:, None]
            curvature = _curvature(self._design, chunk.x, d)
            label_column = chunk.labels[:, None]
            loss = -(chunk.logs.gather(1, label_column)[:, 0] @ chunk.weights)
            g = chunk.p.scatter_add_(1, label_column, -torch.ones_like(chunk.p[:, :1]))
            gradient = _gather(self._design, chunk.x, g * chunk.weights[:, None])
            return torch.cat([gradient.reshape(-1), loss[None], curvature.reshape(-1)])

        classes, size = self._chunks.shape[1], theta.size
        blocks = isinstance(self._design, FullDesign) and classes <= MAX_BLOCKS
        means = self._mean(theta, of_chunk, classes * (classes + 1) if blocks else None)
        return float(means[size]), means[:size].reshape(theta.shape), means[size + 1 :]

    def product(self, theta: Numbers, direction: Numbers) -> Numbers:
        on_device = torch.as_tensor(direction, device=self._chunks.device)

        def of_chunk(chunk: _Chunk) -> torch.Tensor:
            t = _scores(self._design, chunk.x, on_device)
            t -= (chunk.p * t).sum(dim=1, keepdim=True)
            t *= chunk.p * chunk.weights[:, None]
            return _gather(self._design, chunk.x, t)

        return self._mean(theta, of_chunk)

    def _mean(
        self,
        theta: Numbers,
        of_chunk: Callable[[_Chunk], torch.Tensor],
        width: int | None = None,
    ) -> Numbers:
        """Return the sum over chunks, divided by N; `width` as in `RowChunks.slices`."""
        on_device = torch.as_tensor(theta, device=self._chunks.device)

        def of_rows(z: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            x, masked = self._inputs(z)
            scores = _scores(self._design, x, on_device)
            if masked is not None:
                scores = scores.masked_fill_(masked, -torch.inf)
            logs = torch.log_softmax(scores, dim=1)
            return of_chunk(_Chunk(x, logs.exp(), logs, y, w))

        return self._chunks.total(of_rows, width=width) / self._chunks.shape[0]

    def _inputs(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return features (n, K), finite everywhere, and which classes are masked, if any are."""
        masked = torch.isneginf(z)
        if not masked.any():
            return self._features(z), None
        if self._passes_masks:
            return self._features(z).masked_fill(masked, 0.0), masked
        least = z.masked_fill(masked, torch.inf).amin(dim=1, keepdim=True)
        return self._features(torch.where(masked, least, z)), masked

    def _features(self, z: torch.Tensor) -> torch.Tensor:
        form, temperature = self._form, self._temperature
        if form.normalised:
            z = torch.log_softmax(z / temperature if form.dimensionless else z, dim=1)
        return z / form.unit(temperature)


def _scores(design: Design, x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
    """Return the scores (n, K); the arithmetic of a design is that of tensors, too."""
    return cast(torch.Tensor, design.scores(cast(Any, x), cast(Any, theta)))


def _gather(design: Design, x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """Return Σ_i g_ik φ_ikd, (K, D), as `Design.gather` does."""
    if isinstance(design, FullDesign):
        return torch.cat([g.T @ x, g.sum(dim=0)[:, None]], dim=1)
    columns = [(x * g).sum(dim=0)]
    if _has_intercept(design):
        columns.append(g.sum(dim=0))
    return torch.stack(columns, dim=1)


def _curvature(design: Design, x: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
    """Return Σ_i d_ik φ_ik φ_ikᵀ, as `Design.curvature` does."""
    if isinstance(design, FullDesign):
        phi = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        if x.shape[1] <= MAX_BLOCKS:
            return (d.T[:, None, :] * phi.T) @ phi
        mean = d.mean(dim=1, keepdim=True)
        return torch.cat([d.T @ (phi * phi), (phi * mean).T @ phi])
    dx = d * x
    columns = [(dx * x).sum(dim=0)]
    if _has_intercept(design):
        columns += [dx.sum(dim=0), d.sum(dim=0)]
    return torch.stack(columns, dim=1)


def _has_intercept(design: Design) -> bool:
    return isinstance(design, DiagonalDesign) and design.intercept
