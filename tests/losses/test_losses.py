"""Every loss: against slow definitions, finite differences, invariances and hard batches."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from recalib.core.options import configure, options_of
from recalib.errors import InputError
from recalib.losses import LOSSES, Loss
from recalib.losses.base import sum_dtype
from tests.losses.definitions import DEFINITIONS

#: Options of the losses in these tests; other losses need none.
NAMES = sorted(LOSSES)
#: Options under which a small batch has something on either side of every margin.
CLOSE: dict[str, list[dict[str, Any]]] = {
    "acls": [
        {"margin": 1.0},
        {"margin": 0.0, "lambda1": 0.3, "lambda2": 0.2},
        {"margin": 0.5, "variant": "released"},
        {"margin": 0.5, "variant": "released", "lambda1": 0.3, "lambda2": 0.2},
    ],
    "aurc": [{"confidence": "margin"}, {"confidence": "negative_entropy"}],
    "avuc": [{"kappa": 0.7}, {"variant": "released"}],
    "avuc_gs": [{"variant": "released"}],
    "cpc": [{"lambda1": 0.3, "lambda2": 0.0}, {"lambda1": 0.0, "lambda2": 0.7}],
    "dual_focal": [{"gamma": 1.0}],
    "focal": [{"gamma": 0.0}, {"gamma": 0.5}, {"gamma": 1.0}],
    "inverse_focal": [{"gamma": 5.0}],
    "kde_ece": [{"bandwidth": 0.01}, {"bandwidth": 0.05, "variant": "top_label"}],
    "label_smoothing": [{"smoothing": 0.0}, {"smoothing": 0.3}],
    "mbls": [{"margin": 1.0}],
    "mmce": [
        {"weighted": True},
        {"width": 0.1},
        {"variant": "released"},
        {"variant": "released", "weighted": True},
    ],
    "s_avuc": [
        {"kappa": 0.2, "temperature": 0.1},
        {"variant": "released"},
        {"variant": "released", "kappa": 0.3, "temperature": 0.5},
    ],
    "sb_ece": [
        {"variant": "binned"},
        {"order": 1.0, "bins": 5, "temperature": 0.1},
        {"variant": "released"},
        {"variant": "released", "order": 1.0, "bins": 5, "temperature": 0.1},
    ],
    "selective_risk": [
        {"coverage": 0.4, "nu": 0.01, "bins": 40},
        {"confidence": "margin", "coverage": 1.0},
        {"confidence": "negative_entropy", "nu": 0.3},
    ],
}
CASES = [
    (name, options) for name in NAMES if name != "crl" for options in [{}, *CLOSE.get(name, [])]
]


def batch(
    rows: int = 24, classes: int = 5, seed: int = 0, scale: float = 2.0
) -> tuple[Tensor, Tensor]:
    """Logits from which labels are drawn, so that some are right and some wrong."""
    random = np.random.default_rng(seed)
    logits = scale * random.normal(size=(rows, classes))
    labels = (logits / 2 + random.gumbel(size=logits.shape)).argmax(axis=1)
    return torch.tensor(logits), torch.tensor(labels)


def call(loss: Loss, logits: Tensor, labels: Tensor) -> Tensor:
    """Call the loss; `crl` gets a new history."""
    if loss.name != "crl":
        return loss(logits, labels)
    loss.history = torch.arange(len(labels), dtype=torch.int32) % 3
    value: Tensor = loss.eval()(logits, labels, indices=torch.arange(len(labels)))
    return value


@pytest.mark.parametrize(("name", "options"), CASES)
def test_value_matches_the_definition(name, options):
    """An independent loop over rows, in float64, gives the same number."""
    for (rows, classes), seed in product([(24, 5), (7, 2), (3, 11)], range(4)):
        logits, labels = batch(rows, classes, seed)
        actual = float(LOSSES[name](**options)(logits, labels))
        expected = DEFINITIONS[name](logits.tolist(), labels.tolist(), **options)
        # A root of 1e-18 is what sb_ece adds.
        assert actual == pytest.approx(expected, rel=1e-9, abs=1e-8)


#: Where a gradient is stopped, it is not that of the value.
STOPPED = {"avuc_gs", "selective_risk"}


@pytest.mark.parametrize(("name", "options"), CASES)
def test_gradient_matches_finite_differences(name, options):
    """Finite differences in float64, at points away from kinks."""
    if name in STOPPED or (name == "acls" and "variant" in options):
        pytest.skip("its gradient is stopped on purpose, see test_gradients.py")
    logits, labels = batch(9, 4, seed=3)
    loss = LOSSES[name](**options)
    torch.autograd.gradcheck(
        lambda z: loss(z, labels), logits.requires_grad_(), eps=1e-6, atol=1e-6, rtol=1e-5
    )


@pytest.mark.parametrize("name", NAMES)
def test_class_order_does_not_matter(name):
    logits, labels = batch()
    order = torch.tensor([3, 0, 4, 1, 2])
    renamed = torch.empty_like(order)
    renamed[order] = torch.arange(5)
    loss = LOSSES[name]()
    assert call(loss, logits[:, order], renamed[labels]) == pytest.approx(
        float(call(loss, logits, labels)), rel=1e-12
    )


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"crl"}))
def test_order_of_rows_does_not_matter(name):
    logits, labels = batch()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    loss = LOSSES[name]()
    assert loss(logits[order], labels[order]) == pytest.approx(
        float(loss(logits, labels)), rel=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_shifted_logits_have_the_same_loss(name):
    """What is added to all logits of a row changes nothing."""
    logits, labels = batch()
    loss = LOSSES[name]()
    shifted = logits + torch.linspace(-50, 50, len(labels))[:, None].double()
    assert call(loss, shifted, labels) == pytest.approx(
        float(call(loss, logits, labels)), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"crl"}))
def test_dense_predictions_equal_rows(name):
    """(N, K, H, W) with labels (N, H, W) is the same as their rows one by one."""
    logits, labels = batch(24, 5)
    dense = logits.reshape(2, 3, 4, 5).movedim(-1, 1)
    loss = LOSSES[name]()
    assert loss(dense, labels.reshape(2, 3, 4)) == pytest.approx(float(loss(logits, labels)))


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_is_accurate(name):
    """In float32 or from halves, the value is that in float64 of the same logits."""
    logits, labels = batch(64, 10, scale=4)
    loss = LOSSES[name]()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        small = logits.to(dtype).requires_grad_()
        value = call(loss, small, labels)
        actual = value.item()
        assert value.dtype == torch.float32, dtype
        expected = float(call(loss, small.detach().double(), labels))
        assert actual == pytest.approx(expected, rel=1e-4), dtype
        value.backward()
        assert small.grad is not None
        assert small.grad.dtype == dtype
        assert bool(small.grad.isfinite().all()), dtype


#: Batches in which a formula divides by, or takes the root or the logarithm of, next to nothing.
HARD = {
    "all right and sure": (torch.eye(4) * 80, torch.arange(4)),
    "all wrong and sure": (torch.eye(4) * 80, torch.tensor([1, 2, 3, 0])),
    "all right at infinity's edge": (torch.eye(4) * 1e4, torch.arange(4)),
    "all wrong at infinity's edge": (torch.eye(4) * 1e4, torch.tensor([1, 2, 3, 0])),
    "far below zero": (torch.eye(4) * 1e4 - 1e6, torch.arange(4)),
    "nothing known": (torch.zeros(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])),
    "one row": (torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([1])),
    "one row, sure": (torch.tensor([[100.0, 0.0]]), torch.tensor([0])),
    "copies": (torch.tensor([[2.0, 1.0, 0.0]] * 8), torch.tensor([0, 1, 2, 0] * 2)),
    "two classes, mixed": (torch.tensor([[90.0, 0.0], [0.0, 0.1]] * 3), torch.tensor([0, 1] * 3)),
}


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in NAMES), *(case for case in CASES if "variant" in case[1])],
)
def test_hard_batches_stay_finite(name, options):
    """Neither value nor gradient is NaN or infinite for any floats."""
    for case, dtype in product(HARD, (torch.float64, torch.float32, torch.bfloat16)):
        logits, labels = HARD[case]
        z = logits.to(dtype, copy=True).requires_grad_()
        value = call(LOSSES[name](**options), z, labels)
        value.backward()
        assert bool(value.isfinite()), (case, dtype)
        assert z.grad is not None
        assert bool(z.grad.isfinite().all()), (case, dtype, z.grad)


@given(data=st.data())
def test_any_finite_batch_has_a_finite_loss_and_gradient(data):
    """Logits of any size, many of them equal."""
    rows, classes = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 5))
    values = st.one_of(st.sampled_from([-3e4, -1.0, 0.0, 1.0, 3e4]), st.floats(-100, 100, width=32))
    logits = torch.tensor(
        data.draw(st.lists(values, min_size=rows * classes, max_size=rows * classes))
    ).reshape(rows, classes)
    labels = torch.tensor(
        data.draw(st.lists(st.integers(0, classes - 1), min_size=rows, max_size=rows))
    )
    for name in NAMES:
        z = logits.clone().requires_grad_()
        value = call(LOSSES[name](), z, labels)
        value.backward()
        assert bool(value.isfinite()), name
        assert z.grad is not None
        assert bool(z.grad.isfinite().all()), name


BAD = {
    "no axis": (torch.zeros(()), torch.zeros(()).long(), "logits"),
    "integers": (torch.zeros(3, 2).long(), torch.zeros(3).long(), "logits"),
    "one class": (torch.zeros(3, 1), torch.zeros(3).long(), "logits"),
    "no rows": (torch.zeros(0, 3), torch.zeros(0).long(), "logits"),
    "float labels": (torch.zeros(3, 2), torch.zeros(3), "labels"),
    "one-hot labels": (torch.zeros(3, 2), torch.zeros(3, 2).long(), "labels"),
    "too few labels": (torch.zeros(3, 2), torch.zeros(2).long(), "labels"),
    "a label too large": (torch.zeros(3, 2), torch.tensor([0, 1, 2]), "labels"),
    "a negative label": (torch.zeros(3, 2), torch.tensor([0, -1, 1]), "labels"),
    "dense labels of another size": (
        torch.zeros(2, 3, 4, 4),
        torch.zeros(2, 4, 5).long(),
        "labels",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_batches_are_refused(case):
    logits, labels, field = BAD[case]
    for name in sorted(set(NAMES) - {"crl"}):
        with pytest.raises(InputError) as excinfo:
            LOSSES[name]()(logits, labels)
        assert excinfo.value.field == field, name


@pytest.mark.parametrize(
    ("name", "options", "field"),
    [
        ("focal", {"gamma": -1.0}, "gamma"),
        ("focal", {"gamma": float("nan")}, "gamma"),
        ("inverse_focal", {"gamma": -1.0}, "gamma"),
        ("dual_focal", {"gamma": -0.1}, "gamma"),
        ("label_smoothing", {"smoothing": 1.0}, "smoothing"),
        ("sb_ece", {"bins": 0}, "bins"),
        ("sb_ece", {"temperature": 0.0}, "temperature"),
        ("sb_ece", {"order": 0.5}, "order"),
        ("s_avuc", {"kappa": 0.0}, "kappa"),
        ("s_avuc", {"temperature": -1.0}, "temperature"),
        ("avuc", {"kappa": 1.0}, "kappa"),
        ("mmce", {"width": 0.0}, "width"),
        ("mbls", {"margin": -1.0}, "margin"),
        ("acls", {"lambda1": -1.0}, "lambda1"),
        ("cpc", {"lambda2": -1.0}, "lambda2"),
        ("kde_ece", {"bandwidth": 0.0}, "bandwidth"),
        ("selective_risk", {"coverage": 0.0}, "coverage"),
        ("selective_risk", {"nu": 0.0}, "nu"),
        ("focal_scheduled", {"gamma": (5.0, 3.0)}, "until"),
        ("focal_scheduled", {"until": (0.8, 0.2)}, "until"),
        ("focal_sample_dependent", {"until": (1.2,)}, "until"),
        ("focal_sample_dependent", {"p0": (0.2, 0.5)}, "p0"),
        ("focal_sample_dependent", {"p0": (0.2,)}, "until"),
        ("crl", {"samples": -1}, "samples"),
        ("crl", {"variant": "released"}, "samples"),
        ("acls", {"lambda2": -1.0}, "lambda2"),
        ("mmce", {"variant": "text"}, "variant"),
    ],
)
def test_bad_options_are_refused(name, options, field):
    with pytest.raises(InputError) as excinfo:
        LOSSES[name](**options)
    assert excinfo.value.field == f"options.{field}"


@pytest.mark.parametrize("name", NAMES)
def test_options_round_trip_through_a_file(name):
    """What a configuration names, `configure` makes; an unknown option is refused."""
    loss = configure(LOSSES, name, {}, field="loss")
    assert isinstance(loss, LOSSES[name])
    again = configure(LOSSES, name, options_of(loss), field="loss")
    assert options_of(again) == options_of(loss)
    assert call(again, *batch()) == call(loss, *batch())
    with pytest.raises(InputError):
        configure(LOSSES, name, {"nonsense": 1}, field="loss")


@pytest.mark.parametrize("name", NAMES)
def test_loss_is_a_module(name):
    """It can be part of another, moved, saved and printed."""
    module = torch.nn.ModuleDict({"loss": LOSSES[name]()})
    module.to(torch.device("cpu")).train()
    module.load_state_dict(module.state_dict())
    assert name not in repr(module)  # the class's name, with its options
    assert LOSSES[name].__name__ in repr(module)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_cuda_matches_the_cpu_in_float64(name):
    logits, labels = batch(64, 10)
    loss = LOSSES[name]()
    expected = float(call(loss, logits, labels))
    z = logits.cuda().requires_grad_()
    if name == "crl":
        moved = LOSSES[name]().cuda()
        moved.history = (torch.arange(64, dtype=torch.int32) % 3).cuda()
        value = moved.eval()(z, labels.cuda(), indices=torch.arange(64).cuda())
    else:
        value = loss.cuda()(z, labels.cuda())
    assert float(value) == pytest.approx(expected, rel=1e-12)
    value.backward()
    assert z.grad is not None
    assert bool(z.grad.isfinite().all())


class _WithoutFloat64(TorchDispatchMode):
    """Refuses float64, as Apple's GPUs do."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            assert not isinstance(tensor, Tensor) or tensor.dtype != torch.float64, str(func)
        return result


@pytest.mark.parametrize("name", NAMES)
def test_float64_is_needed_on_no_device_without_it(name, monkeypatch):
    """A device such as `mps`; sums are in float32 there."""
    assert sum_dtype(torch.device("mps")) == torch.float32
    for module in ("base", "aurc"):
        monkeypatch.setattr(f"recalib.losses.{module}.sum_dtype", lambda _: torch.float32)
    logits, labels = batch()
    logits = logits.float().requires_grad_()
    loss = configure(LOSSES, name, {"ignore_index": 3}, field="loss")
    with _WithoutFloat64():
        call(loss, logits, labels).backward()
        assert loss.total_weight(labels) == (labels != 3).sum()
