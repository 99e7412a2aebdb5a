"""Slopes that are written by hand: those that autograd finds, once and twice, in any precision."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from recalib.losses.base import entropy, sum_of_squares, top

#: By hand, and left to autograd.
PAIRS = {
    "entropy": (
        lambda z: entropy(z.log_softmax(1)),
        lambda z: -(z.log_softmax(1).exp() * z.log_softmax(1)).sum(1),
    ),
    "sum_of_squares": (sum_of_squares, lambda z: (z * z).sum(1)),
}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[Callable[[Tensor], Tensor], ...]:
    found: tuple[Callable[[Tensor], Tensor], ...] = PAIRS[request.param]
    return found


def test_finite_differences(pair: tuple[Callable[[Tensor], Tensor], ...]) -> None:
    """Of the value, and of the slope."""
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.autograd.gradcheck(pair[0], logits.requires_grad_())
    assert torch.autograd.gradgradcheck(pair[0], logits)


@pytest.mark.parametrize("scale", [0.0, 3.0, 300.0, 1e6])
def test_as_autograd_has_it(pair: tuple[Callable[[Tensor], Tensor], ...], scale: float) -> None:
    """Also where probabilities are 0 and 1 up to rounding, and for rows that weigh unlike."""
    generator = torch.Generator().manual_seed(1)
    logits = scale * torch.randn(50, 7, generator=generator)
    weights = torch.randn(50, generator=generator)
    found = []
    for one in pair:
        z = logits.clone().requires_grad_()
        value = one(z)
        found.append((value.detach(), *torch.autograd.grad((weights * value).sum(), z)))
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
    assert all(bool(one.isfinite().all()) for one in found[0])


def test_the_top_is_the_first_of_the_largest_logits() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]], requires_grad=True)
    confidence, right = top(logits, logits.log_softmax(1), torch.tensor([1, 1]))
    torch.testing.assert_close(confidence, logits.softmax(1)[[0, 1], [1, 0]])
    assert right.tolist() == [True, False]
