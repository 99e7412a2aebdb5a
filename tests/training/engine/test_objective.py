"""The training objective: a weighted sum with schedules, and checked options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from recalib.errors import InputError
from recalib.losses import LOSSES, Regulariser
from recalib.recipe import LossPart, Schedule
from training.engine.objective import TrainingObjective

_Z = torch.randn(40, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
_Y = torch.arange(40) % 5


def compose(samples: int = 0, **part: Any) -> TrainingObjective:
    return TrainingObjective(LossPart.model_validate(part), samples)


def value_of(name: str, logits: Tensor = _Z, **options: Any) -> Tensor:
    return LOSSES[name](**options)(logits, _Y)


@pytest.mark.parametrize("primary", ["cross_entropy", "brier", "focal", "aurc"])
@pytest.mark.parametrize("secondary", ["sb_ece", "s_avuc", "mmce", "acls"])
def test_objective_is_the_sum_of_its_terms(primary: str, secondary: str) -> None:
    """Value and gradient are sums, and each term is available alone."""
    composed = compose(primary=primary, secondary=secondary, beta=0.3)
    ours, theirs = _Z.clone().requires_grad_(), _Z.clone().requires_grad_()
    total = composed(ours, _Y)
    expected = value_of(primary, theirs) + 0.3 * value_of(secondary, theirs)
    torch.testing.assert_close(total, expected)
    (of_ours,) = torch.autograd.grad(total, ours)
    (of_theirs,) = torch.autograd.grad(expected, theirs)
    torch.testing.assert_close(of_ours, of_theirs)
    assert composed(_Z, _Y, terms="primary") == value_of(primary)
    assert composed(_Z, _Y, terms="secondary") == 0.3 * value_of(secondary)


def test_objective_without_secondary_is_the_primary() -> None:
    assert compose(primary="focal", options={"gamma": 2})(_Z, _Y) == value_of("focal", gamma=2.0)


def test_schedules_move_beta_and_options() -> None:
    """γ 5, 3, 2 by thirds is FLSc-532 of paper 004, appendix E; β rises linearly."""
    composed = compose(
        primary="focal",
        secondary="sb_ece",
        schedules={
            "primary.gamma": {"values": [5.0, 3.0, 2.0], "at": [0.0, 100 / 350, 250 / 350]},
            "beta": {"values": [0.0, 1.0], "at": [0.0, 0.5], "shape": "linear"},
        },
    )
    scheduled = LOSSES["focal_scheduled"]()
    for epoch in (0, 99, 100, 249, 250, 349):
        composed.set_progress(epoch / 350)
        scheduled.start_epoch(epoch, 350)
        expected = scheduled(_Z, _Y) + min(epoch / 175, 1.0) * value_of("sb_ece")
        torch.testing.assert_close(composed(_Z, _Y), expected)


def test_epochs_are_passed_to_losses() -> None:
    composed = compose(primary="focal_scheduled")
    composed.start_epoch(300, 350)
    torch.testing.assert_close(composed(_Z, _Y), value_of("focal", gamma=2.0))


def test_crl_gets_indices_and_its_history_is_state() -> None:
    """The history has one entry for each sample; a larger index is an error."""
    composed = compose(samples=40, secondary="crl")
    composed(_Z, _Y, torch.arange(40))
    right = (_Z.argmax(1) == _Y).int()
    assert torch.equal(composed.state_dict()["secondary.history"], right)
    with pytest.raises(InputError, match=r"indices: .*below 40"):
        composed(_Z, _Y, torch.arange(1, 41))


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"primary": "focal", "options": {"gama": 1}}, r"^loss.primary: options.gama: .* gamma"),
        ({"secondary": "mbls", "secondary_options": {"margin": -1}}, r"^loss.secondary: options."),
        ({"schedules": {"beta": {"values": [1], "at": [0]}}}, r"^loss.schedules.beta: .*none"),
        (
            {"secondary": "sb_ece", "schedules": {"beta": {"values": [-1], "at": [0]}}},
            r"^loss.schedules.beta: found -1; accepted: beta ≥ 0",
        ),
        (
            {"secondary": "sb_ece", "schedules": {"secondary.bins": {"values": [3], "at": [0]}}},
            r"accepted: beta, secondary.temperature, secondary.order",
        ),
        (
            {"primary": "focal", "schedules": {"primary.gamma": {"values": [3, -1], "at": [0, 1]}}},
            r"^loss.schedules.primary.gamma: options.gamma: found -1",
        ),
    ],
)
def test_invalid_objectives_are_refused(part: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compose(**part)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_works_in_an_objective(name: str) -> None:
    """A regulariser is added to cross-entropy; a loss may be either."""
    member = LOSSES[name]
    part = {"secondary": name} if issubclass(member, Regulariser) else {"primary": name}
    composed = compose(samples=40, **part)
    assert composed(_Z, _Y, torch.arange(40)).isfinite()


def test_a_schedule_between_its_points() -> None:
    schedule = Schedule(values=[1, 3, 2], at=[0, 0.5, 0.75], shape="linear")
    values = [schedule.value(progress) for progress in (0, 0.25, 0.5, 0.625, 0.75, 1)]
    assert values == pytest.approx([1, 2, 3, 2.5, 2, 2])
