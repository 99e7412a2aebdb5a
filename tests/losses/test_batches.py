"""Labels to ignore, reductions, weights, soft labels, impossible classes, autocast, compilation."""

from __future__ import annotations

import math
import shutil
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from recalib.errors import InputError
from recalib.losses import LOSSES, Loss
from recalib.losses.base import RowLoss
from tests.losses.definitions import DEFINITIONS, softmax
from tests.losses.test_losses import NAMES, batch, call

BY_ROW = [name for name in NAMES if issubclass(LOSSES[name], RowLoss)]
SOFT = [name for name in NAMES if LOSSES[name].accepts_probabilities]
WITHOUT_HISTORY = [name for name in NAMES if name != "crl"]


def close(actual: Tensor, expected: Tensor | float, rel: float = 1e-12) -> None:
    torch.testing.assert_close(
        actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rel, atol=1e-14
    )


def gradient(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    z = logits.clone().requires_grad_()
    value = call(loss, z, labels)
    (result,) = torch.autograd.grad(value.sum(), z)
    return result


def test_kinds_of_losses() -> None:
    """The lists that the tests below go through are not empty by accident."""
    assert set(BY_ROW) >= {"cross_entropy", "brier", "focal", "mbls", "acls", "cpc"}
    assert set(SOFT) >= {"cross_entropy", "label_smoothing", "brier", "focal", "mdca", "kde_ece"}


@pytest.mark.parametrize("name", WITHOUT_HISTORY)
def test_ignored_labels_do_not_count(name: str) -> None:
    logits, labels = batch()
    loss = LOSSES[name](ignore_index=255)
    ignored = torch.arange(len(labels)) % 3 == 0
    void = torch.where(ignored, 255, labels)
    close(loss(logits, void), loss(logits[~ignored], labels[~ignored]))
    slopes = gradient(loss, logits, void)
    assert bool((slopes[ignored] == 0).all())
    close(slopes[~ignored], gradient(loss, logits[~ignored], labels[~ignored]), 1e-9)
    dense = logits.reshape(2, 3, 4, 5).movedim(-1, 1)
    close(loss(dense, void.reshape(2, 3, 4)), loss(logits, void))
    z = logits.clone().requires_grad_()
    nothing = loss(z, torch.full_like(labels, 255))
    nothing.backward()
    assert z.grad is not None
    assert (nothing.item(), bool((z.grad == 0).all())) == (0.0, True)
    with pytest.raises(InputError, match="or 255, which is ignored"):
        loss(logits, torch.full_like(labels, 5))


@pytest.mark.parametrize("name", BY_ROW)
def test_reductions_agree(name: str) -> None:
    logits, labels = batch()
    dense, places = logits.reshape(2, 3, 4, 5).movedim(-1, 1), labels.reshape(2, 3, 4)
    rows = LOSSES[name](reduction="none")(dense, places)
    assert rows.shape == places.shape
    close(rows.mean(), LOSSES[name]()(logits, labels))
    close(rows.sum(), LOSSES[name](reduction="sum")(logits, labels))
    single = LOSSES[name]()(logits[5:6], labels[5:6])
    close(rows.flatten()[5], single)
    with pytest.raises(InputError, match="reduction"):
        LOSSES[name](reduction="median")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_mean_what_they_mean_in_torch(reduction: Any) -> None:
    logits, labels = batch()
    labels[::5] = -100
    weight = (0.5, 2.0, 0.0, 1.0, 3.0)
    options = {"reduction": reduction, "ignore_index": -100}
    ours = LOSSES["cross_entropy"](weight=weight, **options)(logits, labels)
    torchs = functional.cross_entropy(logits, labels, torch.tensor(weight).double(), **options)
    close(ours, torchs)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_of_probabilities_mean_what_they_mean_in_torch(reduction: Any) -> None:
    """The label, and not the row, has the factor of a class; a mean is over rows."""
    logits, _ = batch()
    weight = (0.5, 2.0, 0.0, 1.0, 3.0)
    p = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)).double().softmax(dim=1)
    p[0] = functional.one_hot(torch.tensor(2), 5)
    ours = LOSSES["cross_entropy"](weight=weight, reduction=reduction)(logits, p)
    factors = torch.tensor(weight).double()
    close(ours, functional.cross_entropy(logits, p, factors, reduction=reduction))


@pytest.mark.parametrize("name", BY_ROW)
def test_parts_of_a_batch_add_up_by_their_total_weights(name: str) -> None:
    logits, labels = batch()
    labels[:7] = 255
    loss = LOSSES[name](weight=(0.1, 2.0, 0.0, 1.0, 7.0), ignore_index=255)
    parts = list(zip(logits.split(7), labels.split(7), strict=True))
    total = sum(loss.total_weight(y) * loss(z, y) for z, y in parts)
    close(total / loss.total_weight(labels), loss(logits, labels), 1e-6)


@pytest.mark.parametrize("name", BY_ROW)
def test_weighted_mean_is_that_of_repeated_rows(name: str) -> None:
    logits, labels = batch()
    counts = torch.tensor([1, 3, 2, 1, 4])
    repeats = counts[labels]
    weighted = LOSSES[name](weight=tuple(counts.tolist()))(logits, labels)
    repeated = (logits.repeat_interleave(repeats, 0), labels.repeat_interleave(repeats))
    close(weighted, LOSSES[name]()(*repeated))
    with pytest.raises(InputError, match="a number for each class"):
        LOSSES[name](weight=(1.0, 2.0))(logits, labels)
    with pytest.raises(InputError, match="weight"):
        LOSSES[name](weight=(1.0, -2.0, 1.0, 1.0, 1.0))


@pytest.mark.parametrize("name", NAMES)
def test_soft_labels(name: str) -> None:
    """One-hot probabilities equal integers; mixtures are linear where the formula is."""
    logits, labels = batch()
    hot = functional.one_hot(labels, 5).double()
    loss = LOSSES[name]()
    if name not in SOFT:
        with pytest.raises(InputError) as caught:
            call(loss, logits, hot)
        assert caught.value.field == "labels"
        return
    close(loss(logits, hot), loss(logits, labels), 1e-9)
    with pytest.raises(InputError, match="whose sum is 1"):
        loss(logits, 2 * hot)
    if name in BY_ROW and name != "brier":
        other = functional.one_hot((labels + 1) % 5, 5).double()
        mixed = loss(logits, 0.3 * hot + 0.7 * other)
        close(mixed, 0.3 * loss(logits, hot) + 0.7 * loss(logits, other), 1e-9)
    if name == "cross_entropy":
        p = torch.rand(24, 5, dtype=torch.float64).softmax(dim=1)
        close(loss(logits, p), functional.cross_entropy(logits, p))


@pytest.mark.parametrize("name", WITHOUT_HISTORY)
def test_log_odds_are_logits_of_two_classes(name: str) -> None:
    logits, labels = batch(24, 2)
    odds = logits[:, 1] - logits[:, 0]
    expected = LOSSES[name]()(torch.stack([torch.zeros_like(odds), odds], dim=1), labels)
    close(LOSSES[name]()(odds, labels), expected)


@pytest.mark.parametrize("name", NAMES)
def test_impossible_classes_do_not_exist(name: str) -> None:
    """A class with logit −inf in all rows leaves the loss of the other classes."""
    logits, labels = batch(24, 4)
    masked = torch.cat([logits, torch.full((24, 1), -torch.inf)], dim=1)
    loss = LOSSES[name]()
    close(call(loss, masked, labels), call(loss, logits, labels), 1e-9)
    slopes = gradient(loss, masked, labels)
    assert bool((slopes[:, 4] == 0).all())
    close(slopes[:, :4], gradient(loss, logits, labels), 1e-7)
    with pytest.raises(InputError, match="−inf"):
        call(loss, masked, torch.full_like(labels, 4))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_float32(name: str, dtype: torch.dtype) -> None:
    logits, labels = batch(32, 6)
    small = logits.float()
    z = small.clone().requires_grad_()
    with torch.autocast("cpu", dtype=dtype):
        value = call(LOSSES[name](), z, labels)
    value.backward()
    assert z.grad is not None
    expected = gradient(LOSSES[name](), small, labels)
    torch.testing.assert_close(z.grad, expected, rtol=0, atol=0)


_NEEDS_COMPILER = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")


def compiled(loss: Loss, backend: str) -> Any:
    torch.compiler.reset()
    return torch.compile(loss, fullgraph=True, backend=backend)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor's imports
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "aot_eager") for name in NAMES),
        *(
            pytest.param(name, "inductor", marks=_NEEDS_COMPILER)
            for name in ("focal_sample_dependent", "s_avuc", "sb_ece")
        ),
    ],
)
def test_losses_compile_without_a_graph_break(name: str, backend: str) -> None:
    logits, labels = batch(16, 4)
    if name == "crl":
        loss = LOSSES[name](samples=16).eval()
        loss.history = torch.arange(16, dtype=torch.int32) % 3
        more = {"indices": torch.arange(16)}
    else:
        loss, more = LOSSES[name](), {}
    z = logits.clone().requires_grad_()
    value = compiled(loss, backend)(z, labels, **more)
    value.backward()
    close(value.detach(), loss(logits, labels, **more), 1e-9)
    assert z.grad is not None
    close(z.grad, gradient(loss, logits, labels), 1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_functional_gradients_equal_those_of_autograd(name: str) -> None:
    logits, labels = batch(16, 4)
    loss = LOSSES[name]()
    slopes = torch.func.grad(lambda z: call(loss, z, labels))(logits)
    close(slopes, gradient(loss, logits, labels), 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_soft_avuc_sees_how_sure_a_wrong_row_is(dtype: torch.dtype) -> None:
    """Its formula has no bound, and its gradient does not vanish for confident errors."""
    logits = torch.tensor([[40.0, 0.0, 0.0]] * 4, dtype=dtype)
    labels = torch.tensor([1, 2, 1, 2])
    loss = LOSSES["s_avuc"]()
    p = 2 * math.exp(-40) / (1 + 2 * math.exp(-40))  # of the two other classes
    h = p * (1 - math.log(p / 2))
    share = h / math.log(3)
    expected = -math.log(share) - math.log(h)
    close(loss(logits, labels), expected, 1e-5)
    slopes = gradient(loss, logits, labels)
    assert float(slopes[:, 0].sum()) == pytest.approx(2.0, rel=0.05)  # −2 d log h / dz


@pytest.mark.parametrize("confidence", ["msp", "margin", "negative_entropy"])
def test_saturated_confidences_keep_their_ranks(confidence: str) -> None:
    """In float32, confidences from logits above 17 are all 1; the loss in float64 is the truth."""
    generator = torch.Generator().manual_seed(0)
    tops = 18 + 20 * torch.rand(40, generator=generator, dtype=torch.float64)
    logits = torch.stack([tops, torch.zeros_like(tops), torch.zeros_like(tops)], dim=1)
    labels = (torch.rand(40, generator=generator) < 0.3).long()
    loss = LOSSES["aurc"](confidence=confidence)
    # The most confident rows have the largest logits.
    order = tops.argsort(descending=True)
    losses = functional.cross_entropy(logits, labels, reduction="none")[order]
    expected = (losses.cumsum(0) / torch.arange(1, 41)).mean()
    close(loss(logits.float(), labels), float(expected), 1e-5)


def test_released_acls_holds_the_largest_logit() -> None:
    """As in the authors' code: the term of the other classes does not move it."""
    logits, labels = batch()
    loss = LOSSES["acls"](variant="released", lambda1=0.0, lambda2=1.0, margin=1.0)
    slopes = gradient(loss, logits, labels)
    top = logits.argmax(dim=1, keepdim=True)
    assert bool((slopes.gather(1, top) == 0).all())
    assert bool((slopes < 0).any())


def test_soft_labels_of_brier_are_the_squared_distance() -> None:
    logits, _ = batch(3, 4)
    p = torch.rand(3, 4, dtype=torch.float64).softmax(dim=1)
    rows = [
        sum((a - b) ** 2 for a, b in zip(softmax(row), target, strict=True))
        for row, target in zip(logits.tolist(), p.tolist(), strict=True)
    ]
    close(LOSSES["brier"]()(logits, p), sum(rows) / 3)
    assert set(SOFT) <= set(DEFINITIONS)
