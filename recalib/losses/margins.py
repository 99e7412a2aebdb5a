"""How far each row's logits lie below its largest, beyond a margin, with slopes in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from recalib.losses.blocks import blocks, first_largest, first_smallest, is_large, room

__all__ = ["Margins", "margins_of"]


class Margins(NamedTuple):
    """Of each row, (N,), in units of the logits."""

    #: Its largest and its smallest logit.
    largest: Tensor
    smallest: Tensor
    #: Σ_k max(0, max z − z_k − M)^power.
    beyond: Tensor


def margins_of(logits: Tensor, margin: float, power: int, *, held: bool = False) -> Margins:
    """Return distances below the largest of logits (N, K), `power` being 1 or 2.

    With `held`, the largest has no gradient through `beyond`.
    """
    if not is_large(logits):
        columns = torch.stack([first_largest(logits), first_smallest(logits)], dim=1)
        return Margins(*_values(logits, columns, margin, power, held))
    found: tuple[Tensor, ...] = _Margins.apply(logits, margin, power, held)  # type: ignore[no-untyped-call]
    return Margins(*found)


class _Margins(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, margin: float, power: int, held: bool
    ) -> tuple[Tensor, ...]:
        parts, space = [], room(logits)
        for (z,) in blocks(logits):
            columns = torch.stack([first_largest(z), first_smallest(z)], dim=1)
            ends = z.gather(1, columns)
            over = torch.sub(ends[:, :1] - margin, z, out=space[: len(z)]).clamp_min_(0)
            beyond = (over if power == 1 else over.mul_(over)).sum(dim=1)
            parts.append((columns, ends, beyond))
        columns, ends, beyond = (torch.cat(part) for part in zip(*parts, strict=True))
        ctx.margin, ctx.power, ctx.held = margin, power, held
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, columns)
        largest, smallest = ends.unbind(dim=1)
        return largest, smallest, beyond

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, columns = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody wants the slope's slope
            values = _values(logits, columns, ctx.margin, ctx.power, ctx.held)
            pairs = zip(values, gradients, strict=True)
            outputs, given = zip(*((one, g) for one, g in pairs if g is not None), strict=True)
            (found,) = torch.autograd.grad(outputs, logits, given, create_graph=True)
            return found, None, None, None
        found = torch.empty_like(logits)
        nothing = logits.new_zeros(len(logits))
        *of_ends, of_beyond = (nothing if one is None else one for one in gradients)
        slopes = torch.stack(of_ends, dim=1)
        line = logits.gather(1, columns[:, :1]) - ctx.margin
        rows = (line, columns, slopes, -ctx.power * of_beyond[:, None])
        for z, over, edge, k, g, scale in blocks(logits, found, *rows):
            torch.sub(edge, z, out=over).clamp_min_(0)
            slope = (over.sign_() if ctx.power == 1 else over).mul_(scale)
            if not ctx.held:
                g[:, 0] -= slope.sum(dim=1)
            slope.scatter_add_(1, k, g)
        return found, None, None, None


def _values(
    logits: Tensor, columns: Tensor, margin: float, power: int, held: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return them by torch's own operations, given where the largest and the smallest are."""
    largest, smallest = logits.gather(1, columns).unbind(dim=1)
    line = (largest.detach() if held else largest) - margin
    over = (line[:, None] - logits).relu()
    return largest, smallest, (over if power == 1 else over.square()).sum(dim=1)
