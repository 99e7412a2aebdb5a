"""What losses ask of rows, in blocks and at once: what autograd makes of the definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from recalib.losses import LOSSES, blocks
from recalib.losses.margins import margins_of
from recalib.losses.softmax import mean_softmax, softmax_of
from tests.losses.test_losses import CASES, HARD, NAMES, batch, call

Formula = Callable[[Tensor, Tensor], Tensor]

ALSO = ("largest", "rival", "second", "entropy", "total", "squares")


def of_softmax(name: str) -> Formula:
    return lambda z, y: getattr(softmax_of(z, y, *({name} & set(ALSO))), name)  # type: ignore[arg-type,no-any-return]


def all_but(log_p: Tensor, places: Tensor) -> Tensor:
    return log_p.scatter(1, places[:, None], -torch.inf)


def entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(1)


def beyond(z: Tensor, power: int, held: bool) -> Tensor:
    largest = z.max(dim=1, keepdim=True).values
    return ((largest.detach() if held else largest) - 0.7 - z).relu().pow(power).sum(1)


#: By hand, and by definition.
PAIRS: dict[str, tuple[Formula, Formula]] = {
    "label": (of_softmax("label"), lambda z, y: z.log_softmax(1)[torch.arange(len(y)), y]),
    "largest": (of_softmax("largest"), lambda z, _: z.log_softmax(1).max(1).values),
    "rival": (of_softmax("rival"), lambda z, y: all_but(z.log_softmax(1), y).max(1).values),
    "second": (
        of_softmax("second"),
        lambda z, _: all_but(z.log_softmax(1), z.argmax(1)).max(1).values,
    ),
    "entropy": (of_softmax("entropy"), lambda z, _: entropy(z.log_softmax(1))),
    "total": (of_softmax("total"), lambda z, _: z.log_softmax(1).sum(1)),
    "squares": (of_softmax("squares"), lambda z, _: z.softmax(1).square().sum(1)),
    "all at once": (
        lambda z, y: sum(
            (at + 1) * one
            for at, one in enumerate(softmax_of(z, y, *ALSO))  # type: ignore[arg-type]
            if one.is_floating_point()
        ),
        lambda z, y: sum(
            (at + 1) * definition(z, y)
            for at, definition in [
                (at, PAIRS[name][1])
                for at, name in enumerate(softmax_of(z, y)._fields)
                if name != "place"
            ]
        ),
    ),
    "mean": (lambda z, _: mean_softmax(z), lambda z, _: z.softmax(1).mean(0)),
    "ends": (
        lambda z, _: margins_of(z, 0.7, 1).largest - 2 * margins_of(z, 0.7, 1).smallest,
        lambda z, _: z.max(1).values - 2 * z.min(1).values,
    ),
    "beyond": (lambda z, _: margins_of(z, 0.7, 1).beyond, lambda z, _: beyond(z, 1, False)),
    "beyond, squared": (
        lambda z, _: margins_of(z, 0.7, 2).beyond,
        lambda z, _: beyond(z, 2, False),
    ),
    "beyond, held": (
        lambda z, _: margins_of(z, 0.7, 2, held=True).beyond,
        lambda z, _: beyond(z, 2, True),
    ),
}


@pytest.fixture(params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[Formula, Formula]:
    return PAIRS[request.param]


@pytest.fixture(params=["in blocks", "at once"])
def blocked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are large, of blocks of three to six rows of seven classes; or they are not."""
    if request.param == "in blocks":
        in_blocks(monkeypatch)


def in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LARGE", 1)
    monkeypatch.setattr(blocks, "_BLOCK", 7 * 3)


@pytest.mark.usefixtures("blocked")
@pytest.mark.parametrize("scale", [0.5, 3.0, 300.0, 1e6])
def test_as_autograd_has_it(pair: tuple[Formula, Formula], scale: float) -> None:
    """Also where probabilities are 0 and 1 up to rounding, and for rows that weigh unlike."""
    generator = torch.Generator().manual_seed(1)
    logits = scale * torch.randn(50, 7, generator=generator)
    labels = torch.randint(7, (50,), generator=generator)
    weights = torch.randn(50, generator=generator)
    found = []
    for one in pair:
        z = logits.clone().requires_grad_()
        value = one(z, labels)
        total = (weights[: len(value)] * value).sum()
        found.append((value.detach(), *torch.autograd.grad(total, z)))
    torch.testing.assert_close(found[0], found[1], rtol=2e-5, atol=1e-5 * max(1, scale / 100))
    assert all(bool(one.isfinite().all()) for one in found[0])


@pytest.mark.usefixtures("blocked")
def test_finite_differences(pair: tuple[Formula, Formula]) -> None:
    """Of the value, and of the slope; seven rows in blocks of three leave one that is shorter."""
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(7, 7, generator=generator, dtype=torch.float64)
    labels = torch.randint(7, (7,), generator=generator)
    if pair is not PAIRS["beyond, held"]:  # its slope is not that of its value
        assert torch.autograd.gradcheck(lambda z: pair[0](z, labels), logits.requires_grad_())
        assert torch.autograd.gradgradcheck(lambda z: pair[0](z, labels), logits)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_blocks_change_no_loss(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, labels = batch(50, 7)
    expected = value_and_slope(name, logits, labels, **options)
    in_blocks(monkeypatch)
    found = value_and_slope(name, logits, labels, **options)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", HARD)
def test_hard_batches_stay_finite_in_blocks(
    name: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_blocks(monkeypatch)
    logits, labels = HARD[case]
    z = logits.clone().requires_grad_()
    value = call(LOSSES[name](), z, labels)
    value.backward()
    assert bool(value.isfinite())
    assert z.grad is not None
    assert bool(z.grad.isfinite().all())


@pytest.mark.usefixtures("blocked")
def test_the_largest_is_the_first_among_equals() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0], [5.0, 5.0, 5.0]], requires_grad=True)
    labels = torch.tensor([1, 1, 2])
    found = softmax_of(logits, labels, "largest", "second", "rival")
    assert found.place.tolist() == [1, 0, 0]
    torch.testing.assert_close(found.largest, logits.log_softmax(1)[[0, 1, 2], [1, 0, 0]])
    slopes = torch.autograd.grad(found.rival.sum() + found.second.sum(), logits)[0]
    p = logits.detach().softmax(1)
    rivals, seconds = torch.tensor([2, 0, 0]), torch.tensor([2, 1, 1])
    one_hot = torch.nn.functional.one_hot
    torch.testing.assert_close(slopes, one_hot(rivals, 3) + one_hot(seconds, 3) - 2 * p)


def test_a_large_batch_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,100 rows of 1,000 classes, beside float64 at once."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2_100, 1_000, generator=generator)
    labels = torch.randint(1_000, (2_100,), generator=generator)
    assert blocks.is_large(logits)
    names = ("cross_entropy", "brier", "s_avuc", "acls", "mdca")
    found = {name: value_and_slope(name, logits, labels) for name in names}
    monkeypatch.setattr(blocks, "_LARGE", 10**9)
    for name, (value, slope) in found.items():
        expected = value_and_slope(name, logits.double(), labels)
        assert value.item() == pytest.approx(expected[0].item(), rel=1e-4)
        torch.testing.assert_close(slope.double(), expected[1], rtol=1e-3, atol=1e-8)


@pytest.mark.usefixtures("blocked")
@pytest.mark.parametrize("name", ["label_smoothing", "brier", "s_avuc", "acls", "mdca"])
def test_layout_changes_nothing(name: str) -> None:
    """Logits that lie column by column are the same logits."""
    logits, labels = batch(50, 7)
    columns = logits.T.contiguous().T
    assert not columns.is_contiguous()
    torch.testing.assert_close(
        value_and_slope(name, columns, labels), value_and_slope(name, logits, labels)
    )


def value_and_slope(
    name: str, logits: Tensor, labels: Tensor, **options: Any
) -> tuple[Tensor, Tensor]:
    z = logits.clone().requires_grad_()
    value = LOSSES[name](**options)(z, labels)
    return value.detach(), torch.autograd.grad(value, z)[0]
