"""What losses ask of each row's softmax, with slopes in closed form.

Made of torch's own operations, a loss keeps the arrays on the way to its value, log p among them,
for the gradient. Of a large batch the logits are kept here, and two numbers a row: the gradient
makes p once more, block by block (`recalib.losses.blocks`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from recalib.losses.blocks import blocks, first_largest, is_large, room
from recalib.losses.narrow import log_softmax, softmax

__all__ = ["Also", "Softmax", "mean_softmax", "softmax_of"]

#: What is log p at some place of a row, and what a place is not to be.
_PLACES = ("label", "largest", "rival", "second")
_BESIDES = {"rival": "label", "second": "largest"}

Also = Literal["largest", "rival", "second", "entropy", "total", "squares"]


class Softmax(NamedTuple):
    """Of each row, (N,); None where it was not asked for. Logarithms are natural."""

    #: log p of the label, which is always there, and of the largest logit.
    label: Tensor
    largest: Tensor
    #: Which class the largest is, the first among equals: integers, without a gradient.
    place: Tensor
    #: The largest log p of another class than the label, and than the largest.
    rival: Tensor
    second: Tensor
    #: −Σ p log p, in nats.
    entropy: Tensor
    #: Σ log p.
    total: Tensor
    #: Σ p².
    squares: Tensor


def softmax_of(logits: Tensor, labels: Tensor, *also: Also) -> Softmax:
    """Return what is asked of the softmax of logits (N, K), with labels (N,)."""
    if is_large(logits):
        found: Sequence[Tensor] = _Softmax.apply(logits, labels, also)  # type: ignore[no-untyped-call]
        return Softmax(*found)
    places = {"label": labels}
    if "largest" in also or "second" in also:
        places["largest"] = first_largest(logits)
    for one, besides in _BESIDES.items():
        if one in also:
            places[one] = _largest_besides(logits.detach().clone(), places[besides])
    columns = torch.stack(list(places.values()), dim=1)
    values = _values(logits, columns, {*places, *also})
    if "largest" in places:
        values["place"] = places["largest"]
    return Softmax(*(values.get(one) for one in Softmax._fields))  # type: ignore[arg-type]


def mean_softmax(logits: Tensor) -> Tensor:
    """Return the mean over rows of the softmax of logits (N, K), as (K,)."""
    if not is_large(logits):
        return softmax(logits).mean(dim=0)
    found: Tensor = _MeanSoftmax.apply(logits)  # type: ignore[no-untyped-call]
    return found


class _Softmax(torch.autograd.Function):
    """With e_k = exp(z_k − max z) and s = Σ e, p is e/s. The slopes in z_i:

    of log p_k, 1[i = k] − p_i; of the entropy H, −p_i (log p_i + H); of Σ log p, 1 − K p_i; of
    Q = Σ p², 2 p_i (p_i − Q).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, also: tuple[Also, ...]
    ) -> tuple[Tensor | None, ...]:
        shifts = room(logits)
        powers = room(logits) if "entropy" in also else shifts
        parts: list[dict[str, Tensor]] = []
        for z, y in blocks(logits, labels):
            place = first_largest(z)
            top = z.gather(1, place[:, None])
            part = {"top": top, "label": y, "largest": place}
            t = torch.sub(z, top, out=shifts[: len(z)])
            for one, besides in _BESIDES.items():
                if one in also:
                    part[one] = _largest_besides(t, part[besides])
            if "total" in also:
                part["total"] = t.sum(dim=1)
            e = torch.exp(t, out=powers[: len(z)])
            part["s"] = e.sum(dim=1)
            if "entropy" in also:
                part["entropy"] = t.mul_(e).sum(dim=1)
            if "squares" in also:
                part["squares"] = torch.mul(e, e, out=t).sum(dim=1)
            parts.append(part)
        found = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        names = [one for one in _PLACES if one in found]
        columns = torch.stack([found[one] for one in names], dim=1)
        found["place"], top, s = found["largest"], found.pop("top"), found.pop("s")
        log_s = s.log()
        log_p = logits.gather(1, columns) - top - log_s[:, None]
        found |= zip(names, log_p.unbind(dim=1), strict=True)
        if "total" in also:
            found["total"] -= logits.shape[1] * log_s
        if "entropy" in also:
            found["entropy"] = log_s - found["entropy"] / s
        if "squares" in also:
            found["squares"] /= s.square()
        ctx.names = names
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(found["place"])
        numbers = (found.get("entropy"), found.get("squares"))
        ctx.save_for_backward(logits, columns, top, s, *numbers)
        return tuple(found.get(one) for one in Softmax._fields)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, columns, top, s, entropy, squares = ctx.saved_tensors
        given = dict(zip(Softmax._fields, gradients, strict=True))
        if torch.is_grad_enabled():  # somebody wants the slope's slope
            wanted = {one: slope for one, slope in given.items() if slope is not None}
            values = _values(logits, columns, {*ctx.names, *wanted})
            outputs = [values[one] for one in wanted]
            (slope,) = torch.autograd.grad(outputs, logits, [*wanted.values()], create_graph=True)
            return slope, None, None
        nothing = torch.zeros_like(s)
        of_log_p = [given[one] for one in ctx.names]
        slopes = torch.stack([nothing if one is None else one for one in of_log_p], dim=1)
        # In z_i: e_i · (constant + linear · log e_i + quadratic · e_i) + flat, and what is at k.
        constant, linear, quadratic, flat = -slopes.sum(dim=1), nothing, nothing, nothing
        of_entropy, of_total, of_squares = (given[n] for n in ("entropy", "total", "squares"))
        if of_entropy is not None:
            constant += of_entropy * (s.log() - entropy)
            linear = -of_entropy / s
        if of_total is not None:
            constant -= logits.shape[1] * of_total
            flat = of_total
        if of_squares is not None:
            constant -= 2 * of_squares * squares
            quadratic = 2 * of_squares / s.square()
        found = torch.empty_like(logits)
        powers = found if of_entropy is None and of_squares is None else room(logits)
        terms = (one[:, None] for one in (constant / s, linear, quadratic, flat))
        for z, t, m, k, g, a, b, c, d in blocks(logits, found, top, columns, slopes, *terms):
            torch.sub(z, m, out=t)
            if powers is found:
                t.exp_().mul_(a)
            else:
                e = torch.exp(t, out=powers[: len(t)])
                if of_entropy is None:
                    torch.mul(e, c, out=t).add_(a)
                else:
                    t.mul_(b).add_(a)
                    if of_squares is not None:
                        t.addcmul_(e, c)
                t.mul_(e)
            if of_total is not None:
                t.add_(d)
            t.scatter_add_(1, k, g)
        return found, None, None


class _MeanSoftmax(torch.autograd.Function):
    """Of Σ_k g_k p_k, the slope in z_i is p_i (g_i − Σ_k g_k p_k)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        found, space = logits.new_zeros(logits.shape[1]), room(logits)
        for (z,) in blocks(logits):
            found += torch.softmax(z, dim=1, out=space[: len(z)]).sum(dim=0)
        ctx.save_for_backward(logits)
        return found / len(logits)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            value = logits.softmax(dim=1).mean(dim=0)
            slope: Tensor = torch.autograd.grad(value, logits, gradient, create_graph=True)[0]
            return slope
        found, space, each = torch.empty_like(logits), room(logits), gradient / len(logits)
        for z, p in blocks(logits, found):
            torch.softmax(z, dim=1, out=p)
            made = space[: len(p)]
            mean = torch.mul(p, each, out=made).sum(dim=1, keepdim=True)
            p.mul_(torch.sub(each, mean, out=made))
        return found


def _values(logits: Tensor, columns: Tensor, names: Collection[str]) -> dict[str, Tensor]:
    """Return what of `Softmax` is named by torch's own operations; places are in `columns`."""
    log_p = log_softmax(logits)
    at = [one for one in _PLACES if one in names]
    found = dict(zip(at, log_p.gather(1, columns).unbind(dim=1), strict=True))
    p = log_p.exp() if "entropy" in names or "squares" in names else log_p
    if "entropy" in names:
        found["entropy"] = -(p * log_p).sum(dim=1)
    if "total" in names:
        found["total"] = log_p.sum(dim=1)
    if "squares" in names:
        found["squares"] = (p * p).sum(dim=1)
    return found


def _largest_besides(t: Tensor, places: Tensor) -> Tensor:
    """Return the place of the largest in each row that is not at `places`, (n,)."""
    columns = places[:, None]
    kept = t.gather(1, columns)
    found = first_largest(t.scatter_(1, columns, -torch.inf))
    t.scatter_(1, columns, kept)
    return found
