"""The loop: it does what a plain loop does, and an end at any step changes nothing."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.metrics.evaluate import evaluate
from recalib.recipe import Recipe
from tests.training.engine.tiny import Memory, Onlooker, recipe, splits
from training.data import Splits
from training.engine.batches import epoch_steps, held_out
from training.engine.loop import Trained, train
from training.models import MODELS


class Restless(nn.Module):
    """Dropout, running statistics and a head: all that a resumed run could get wrong."""

    def __init__(self, classes: int, *, features: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(features, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3)
        )
        self.head = nn.Linear(8, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs))
        return logits


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "restless", Restless)


class Enough(BaseException):
    """What ends a run from outside."""


def run(wanted: Recipe, data: Splits | None = None) -> Trained:
    return train(wanted, data or splits(), Memory(), Onlooker())


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in one.items() if k != "seconds"} for one in history]


def test_it_is_the_loop_that_one_would_write() -> None:
    """SGD with momentum, weight decay and steps, in float64 from the same weights and rows."""
    wanted = recipe(epochs=4, optimiser={"milestones": [2, 3], "weight_decay": 0.01})
    data = splits()
    nothing = recipe(epochs=1, optimiser={"learning_rate": 1e-30})
    start = run(nothing, data).weights
    network = nn.Linear(2, 3).double()
    network.load_state_dict({k.removeprefix("head."): v for k, v in start.items()})
    x, y = data.train.batch(range(120)), torch.from_numpy(data.train.labels)
    assert isinstance(x, Tensor)
    momenta = [torch.zeros_like(one) for one in network.parameters()]
    for epoch in range(4):
        rate = {0: 0.1, 1: 0.1, 2: 0.01, 3: 0.001}[epoch]
        for step in epoch_steps(wanted, 120, epoch, interleaved=False):
            log_p = network(x[step.rows].double()).log_softmax(1)
            loss = -log_p.gather(1, y[step.rows][:, None]).mean()
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            with torch.no_grad():
                for one, momentum, gradient in zip(
                    network.parameters(), momenta, gradients, strict=True
                ):
                    momentum.mul_(0.9).add_(gradient + 0.01 * one)
                    one.sub_(rate * momentum)
    found = run(wanted, data).weights
    for name, one in network.state_dict().items():
        torch.testing.assert_close(found[f"head.{name}"].double(), one, rtol=1e-5, atol=1e-6)


def test_a_batch_in_parts_is_the_batch() -> None:
    """Parts of unlike size count by their rows; 104 rows are three batches of 32 and one of 8."""
    data = splits(train=104)
    whole, parts = run(recipe(), data), run(recipe(accumulate=3), data)
    for name, one in whole.weights.items():
        torch.testing.assert_close(parts.weights[name], one, rtol=1e-5, atol=1e-6)


RECIPES: dict[str, dict[str, Any]] = {
    "sgd": {"optimiser": {"milestones": [1]}},
    "adamw": {"optimiser": {"name": "adamw", "schedule": "cosine", "warmup_epochs": 0.5}},
    "adagrad": {"optimiser": {"name": "adagrad", "schedule": "constant"}},
    "plain": {"optimiser": {"momentum": 0.0}, "accumulate": 2},
    "crl": {"loss": {"secondary": "crl"}, "stop": {"keep": "best"}},
    "schedules": {
        "loss": {
            "primary": "focal_scheduled",
            "secondary": "sb_ece",
            "schedules": {"beta": {"values": [0, 1], "at": [0, 1], "shape": "linear"}},
        }
    },
    "interleaved": {"loss": {"secondary": "s_avuc"}, "interleave": {"when": "always"}},
    "often": {"checkpoint_steps": 1},
}


def interrupted(wanted: Recipe, data: Splits, every: int) -> Trained:
    """Train in pieces: each ends before a step, and the next goes on."""
    memory, steps, ends = Memory(), 0, 0

    def end() -> None:
        nonlocal steps
        steps += 1
        if steps % every == 0:
            raise Enough

    while True:
        try:
            found = train(wanted, data, memory, Onlooker(end))
        except Enough:
            ends += 1
            assert ends < 100
        else:
            assert ends > 3
            return found


@pytest.mark.parametrize("name", RECIPES)
def test_an_end_at_any_step_changes_nothing(name: str) -> None:
    """Weights, history and logits are those of a run that was let alone, bit for bit."""
    wanted, data = recipe(model={"name": "restless"}, **RECIPES[name]), splits()
    alone, resumed = run(wanted, data), interrupted(wanted, data, every=3)
    assert_same(alone.weights, resumed.weights)
    assert without_times(alone.history) == without_times(resumed.history)
    assert np.array_equal(alone.test_logits, resumed.test_logits)
    assert alone.best_epoch == resumed.best_epoch


def test_a_killed_run_goes_on_from_its_last_checkpoint() -> None:
    """Nothing is saved at its end, and steps after the checkpoint are taken again."""
    wanted, data = recipe(model={"name": "restless"}, checkpoint_steps=2), splits()
    memory, kept = Memory(), []

    def note() -> None:
        kept.append(memory.data)

    alone = train(wanted, data, memory, Onlooker(note))
    for at in (0, 3, 7):  # before the first step; within an epoch; within the next
        memory = Memory()
        memory.data = kept[at]
        assert_same(train(wanted, data, memory, Onlooker()).weights, alone.weights)


def test_a_finished_run_is_not_trained_again() -> None:
    memory, wanted = Memory(), recipe()
    first = train(wanted, splits(), memory, Onlooker())
    onlooker = Onlooker(lambda: pytest.fail("a step"))
    assert_same(first.weights, train(wanted, splits(), memory, onlooker).weights)


@pytest.mark.parametrize(
    "other",
    [
        {"wanted": recipe(seed=2)},
        {"wanted": recipe(epochs=4)},
        {"data": splits(seed=1)},
        {"given": {"head.weight": torch.ones(3, 2), "head.bias": torch.zeros(3)}},
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other: dict[str, Any]) -> None:
    memory = Memory()
    train(recipe(), splits(), memory, Onlooker())
    with pytest.raises(InputError, match="another recipe or other data"):
        train(
            other.get("wanted", recipe()),
            other.get("data", splits()),
            memory,
            Onlooker(),
            other.get("given"),
        )


def test_the_best_weights_are_kept_and_patience_ends_a_run() -> None:
    """A rate that is too large wanders: the best epoch is not the last, and after it come two."""
    wanted = recipe(
        epochs=40,
        optimiser={"learning_rate": 3.0},
        stop={"keep": "best", "score": "brier", "patience": 2},
    )
    found = run(wanted)
    scores = [one["validation"]["brier"] for one in found.history]
    assert found.best_epoch == 1 + int(np.argmin(scores)) == len(scores) - 2
    said = evaluate(splits().validation.labels, logits=found.validation_logits, metrics=["brier"])
    assert said["brier"].value == min(scores)


def test_interleaved_halves_share_no_rows() -> None:
    """Every row is in one step of each epoch, in another order each time."""
    wanted = recipe(
        loss={"secondary": "mmce"}, interleave={"when": "always", "held_out": 0.25}, batch_size=16
    )
    kept = set(held_out(wanted, 100).tolist())
    assert len(kept) == 25
    orders = set()
    for epoch in range(3):
        steps = epoch_steps(wanted, 100, epoch, interleaved=True)
        halves = {
            terms: [int(row) for one in steps if one.terms == terms for row in one.rows]
            for terms in ("primary", "secondary")
        }
        assert set(halves["secondary"]) == kept
        assert sorted(halves["primary"] + halves["secondary"]) == list(range(100))
        assert [one.terms for one in steps] == ["primary"] * 5 + ["secondary"] * 2
        orders.add(tuple(halves["secondary"]))
    assert len(orders) == 3


def test_a_held_out_row_never_meets_the_primary_loss() -> None:
    """With β = 0 and no momentum, labels of held-out rows have no influence at all."""
    wanted = recipe(
        loss={"secondary": "mmce", "beta": 0.0},
        interleave={"when": "always"},
        optimiser={"momentum": 0.0},
    )
    data, other = splits(), splits()
    rows = held_out(wanted, len(other.train))
    other.train.labels[rows] = (other.train.labels[rows] + 1) % 3
    assert_same(run(wanted, data).weights, run(wanted, other).weights)


def test_a_run_that_knows_its_rows_by_heart_begins_anew_interleaved() -> None:
    """Separable rows at a large rate: everything is right and sure, and elsewhere it is not.

    An end at any step changes nothing about it.
    """
    wanted = recipe(
        epochs=8,
        optimiser={"learning_rate": 30.0, "weight_decay": 0.0},
        loss={"secondary": "sb_ece", "beta": 0.1},
        interleave={"when": "auto"},
        batch_size=9,
    )
    data = splits(train=9, noise=0.6, seed=4)
    found = run(wanted, data)
    assert_same(interrupted(wanted, data, every=2).weights, found.weights)
    first = [one for one in found.history if not one["interleaved"]]
    again = [one for one in found.history if one["interleaved"]]
    assert found.interleaved
    assert first
    assert first[-1]["train"]["ece"] < 0.01 <= first[-1]["validation"]["ece"] / 2
    assert [one["epoch"] for one in again] == list(range(1, 9))
    assert [one["epoch"] for one in first] == list(range(1, len(first) + 1))


def test_a_run_that_diverges_says_so_and_leaves_no_checkpoint_of_it() -> None:
    memory = Memory()
    wanted = recipe(optimiser={"learning_rate": 1e30}, loss={"primary": "cross_entropy"})
    with pytest.raises(InputError, match=r"^optimiser.learning_rate: .*not finite"):
        train(wanted, splits(), memory, Onlooker())
    assert memory.data is None


def test_rows_too_few_for_a_step() -> None:
    with pytest.raises(InputError, match=r"^batch_size: found 1 training rows"):
        run(recipe(), splits(train=1))


def test_positions_say_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.engine.loop._EVERY_SECONDS", 0.0)
    onlooker = Onlooker()
    train(recipe(), splits(), Memory(), onlooker)
    found = onlooker.positions
    assert [one.fraction for one in found] == pytest.approx([(i + 1) / 12 for i in range(12)])
    assert [one.epoch for one in found] == [1] * 4 + [2] * 4 + [3] * 4
    assert found[-1].seconds_left == 0 < found[0].seconds_left
    assert found[-1].loss == onlooker.records[-1]["loss"]


def test_epochs_shorter_than_half_a_second_are_told_of_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes .42 s here, by a clock that moves by .07 whenever it is looked at."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 0.07 * next(ticks))
    monkeypatch.setattr("training.engine.loop.time", clock)
    onlooker = Onlooker()
    train(recipe(), splits(), Memory(), onlooker)
    fractions = [one.fraction for one in onlooker.positions]
    assert len(fractions) == 2
    assert 0.3 < fractions[0] < fractions[1] <= 1
    # What is measured between epochs counts as well: some six looks an epoch, of four steps.
    first = onlooker.positions[0]
    assert first.seconds_left > 0.07 * 12 * (1 - first.fraction)
