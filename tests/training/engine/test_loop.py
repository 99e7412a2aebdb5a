"""The training loop matches a plain loop, and interruptions do not change the result."""

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
from training.engine.batches import Step, epoch_steps, held_out, shares
from training.engine.loop import TrainingResult, train
from training.models import MODELS


class Restless(nn.Module):
    """A network with dropout, running statistics and a head."""

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
    """Interrupts a run."""


def run(config: Recipe, data: Splits | None = None) -> TrainingResult:
    return train(config, data or splits(), Memory(), Onlooker())


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


def test_training_matches_a_plain_loop() -> None:
    """SGD with momentum, weight decay and steps, in float64 from the same weights and rows."""
    config = recipe(epochs=4, optimiser={"milestones": [2, 3], "weight_decay": 0.01})
    data = splits()
    nothing = recipe(epochs=1, optimiser={"learning_rate": 1e-30})
    start = run(nothing, data).weights
    network = nn.Linear(2, 3).double()
    network.load_state_dict({k.removeprefix("head."): v for k, v in start.items()})
    x, y = data.train.batch(range(120)), torch.from_numpy(data.train.labels)
    assert isinstance(x, Tensor)
    momenta = [torch.zeros_like(parameter) for parameter in network.parameters()]
    for epoch in range(4):
        rate = {0: 0.1, 1: 0.1, 2: 0.01, 3: 0.001}[epoch]
        for step in epoch_steps(config, 120, epoch, interleaved=False):
            log_p = network(x[step.rows].double()).log_softmax(1)
            loss = -log_p.gather(1, y[step.rows][:, None]).mean()
            gradients = torch.autograd.grad(loss, list(network.parameters()))
            with torch.no_grad():
                for parameter, momentum, gradient in zip(
                    network.parameters(), momenta, gradients, strict=True
                ):
                    momentum.mul_(0.9).add_(gradient + 0.01 * parameter)
                    parameter.sub_(rate * momentum)
    weights = run(config, data).weights
    for name, expected in network.state_dict().items():
        torch.testing.assert_close(weights[f"head.{name}"].double(), expected, rtol=1e-5, atol=1e-6)


def test_gradient_accumulation_matches_the_full_batch() -> None:
    """Parts are weighted by their rows; 104 rows are three batches of 32 and one of 8."""
    data = splits(train=104)
    full_batch, accumulated = run(recipe(), data), run(recipe(accumulate=3), data)
    for name, weight in full_batch.weights.items():
        torch.testing.assert_close(accumulated.weights[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_class_weights_count_in_the_whole_batch(reduction: Any) -> None:
    """The gradient of one part and of four is that of torch's loss of all rows."""
    data, factors = splits(), [0.1, 1.0, 7.0]
    loss = {"options": {"weight": factors}, "reduction": reduction}

    def step(rate: float, accumulate: int) -> Tensor:
        plain = {"momentum": 0.0, "weight_decay": 0.0, "learning_rate": rate}
        options = {"epochs": 1, "batch_size": 120, "accumulate": accumulate}
        weights = run(recipe(loss=loss, optimiser=plain, **options), data).weights
        return torch.cat([weights["head.weight"], weights["head.bias"][:, None]], dim=1)

    start = step(1e-30, 1)
    x, y = data.train.batch(range(120)), torch.from_numpy(data.train.labels)
    z = torch.cat([torch.as_tensor(x), torch.ones(120, 1)], dim=1).double()
    w = start.double().requires_grad_()
    value = nn.functional.cross_entropy(
        z @ w.T, y, torch.tensor(factors).double(), reduction=reduction
    )
    (expected,) = torch.autograd.grad(value, w)
    rate = 1.0 if reduction == "mean" else 1 / 256
    for accumulate in (1, 4):
        gradient = (start - step(rate, accumulate)).double() / rate
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-6 / rate)


def test_sum_of_a_loss_of_the_whole_batch_is_a_multiple() -> None:
    """Rows that sum, plus β times the number of rows times the loss of the batch, as paper 004."""
    part = {"primary": "focal", "secondary": "mmce", "beta": 2.0}
    mean = recipe(loss=part, epochs=1, batch_size=120, optimiser={"learning_rate": 0.12})
    total = {"loss": {**part, "reduction": "sum"}, "optimiser": {"learning_rate": 0.001}}
    rows = recipe(epochs=1, batch_size=120, **total)
    plain = {"momentum": 0.0, "weight_decay": 0.0}
    results = [
        run(config.model_copy(update={"optimiser": config.optimiser.model_copy(update=plain)}))
        for config in (mean, rows)
    ]
    for name, weight in results[0].weights.items():
        torch.testing.assert_close(results[1].weights[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("more", [{}, {"accumulate": 2}, {"precision": "bf16"}])
def test_clipping_bounds_the_step(more: dict[str, Any]) -> None:
    """With a rate of 1, the weights move by the bound, in the direction of the gradient.

    A bound above the norm of the gradient changes nothing.
    """
    plain = {"momentum": 0.0, "weight_decay": 0.0}

    def weights(rate: float, clip_norm: float | None) -> Tensor:
        config = recipe(
            epochs=1,
            batch_size=120,
            optimiser={**plain, "learning_rate": rate},
            clip_norm=clip_norm,
            **more,
        )
        return torch.cat([weight.flatten() for weight in run(config).weights.values()])

    start = weights(1e-30, None)
    step, clipped = weights(1.0, None) - start, weights(1.0, 0.05) - start
    assert step.norm() > 0.1
    torch.testing.assert_close(clipped, step * 0.05 / step.norm(), rtol=1e-3, atol=1e-5)
    assert torch.equal(weights(1.0, 2 * float(step.norm())) - start, step)


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
    "averaged": {"ema_decay": 0.9, "clip_norm": 0.05, "stop": {"keep": "best"}},
}


def interrupted(config: Recipe, data: Splits, every: int) -> TrainingResult:
    """Train with an interruption every `every` steps."""
    memory, steps, ends = Memory(), 0, 0

    def end() -> None:
        nonlocal steps
        steps += 1
        if steps % every == 0:
            raise Enough

    while True:
        try:
            result = train(config, data, memory, Onlooker(end))
        except Enough:
            ends += 1
            assert ends < 100
        else:
            assert ends > 3
            return result


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in ("adagrad", "plain") else [])
        for name in RECIPES
    ],
)
def test_interruptions_do_not_change_the_result(name: str) -> None:
    """Weights, history and logits equal those of an uninterrupted run bit for bit."""
    config, data = recipe(model={"name": "restless"}, **RECIPES[name]), splits()
    uninterrupted, resumed = run(config, data), interrupted(config, data, every=3)
    assert_same(uninterrupted.weights, resumed.weights)
    assert without_times(uninterrupted.history) == without_times(resumed.history)
    assert np.array_equal(uninterrupted.test.logits, resumed.test.logits)
    assert uninterrupted.best_epoch == resumed.best_epoch


def test_killed_run_resumes_from_its_last_checkpoint() -> None:
    """Steps after the checkpoint are repeated."""
    config, data = recipe(model={"name": "restless"}, checkpoint_steps=2), splits()
    memory, saved = Memory(), []

    def note() -> None:
        saved.append(memory.data)

    uninterrupted = train(config, data, memory, Onlooker(note))
    for at in (0, 3, 7):  # before the first step; within an epoch; within the next
        memory = Memory()
        memory.data = saved[at]
        assert_same(train(config, data, memory, Onlooker()).weights, uninterrupted.weights)


def test_a_finished_run_is_not_trained_again() -> None:
    memory, config = Memory(), recipe()
    first = train(config, splits(), memory, Onlooker())
    onlooker = Onlooker(lambda: pytest.fail("a step"))
    assert_same(first.weights, train(config, splits(), memory, onlooker).weights)


OTHER_WEIGHTS = {"head.weight": torch.ones(3, 2), "head.bias": torch.zeros(3)}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"config": recipe(seed=2)}, "^seed: found 2, and a checkpoint of a run with 1;"),
        ({"config": recipe(epochs=2)}, "^epochs: found 2, and .* with 3; .*only `epochs` may incr"),
        ({"config": recipe(epochs=4, clip_norm=1.0)}, "^clip_norm: found 1.0, and .* with nothing"),
        (
            {"config": recipe(loss={"primary": "brier"})},
            "^loss.primary: found 'brier', and .*'cros",
        ),
        ({"config": recipe(mixing={"method": "mixup"})}, "^mixing: "),
        ({"data": splits(seed=1)}, "^data: found other contents"),
        ({"initial_weights": OTHER_WEIGHTS}, "^model.weights: found other contents"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(other: dict[str, Any], message: str) -> None:
    memory = Memory()
    train(recipe(), splits(), memory, Onlooker())
    arguments = {"config": recipe(), "data": splits(), **other}
    config, data = arguments.pop("config"), arguments.pop("data")
    with pytest.raises(InputError, match=message):
        train(config, data, memory, Onlooker(), **arguments)


def test_a_finished_run_goes_on_for_more_epochs() -> None:
    """The result is that of a run which had as many epochs from the start."""
    more: dict[str, Any] = {
        "model": {"name": "restless"},
        "optimiser": {"milestones": [2, 4], "warmup_epochs": 1.0},
        "loss": {"secondary": "crl"},
        "stop": {"keep": "best"},
        "ema_decay": 0.9,
    }
    memory, steps = Memory(), 0

    def count() -> None:
        nonlocal steps
        steps += 1

    train(recipe(**more), splits(), memory, Onlooker())
    continued = train(recipe(**more, epochs=5), splits(), memory, Onlooker(count))
    complete = run(recipe(**more, epochs=5))
    assert steps == 2 * 4
    assert_same(continued.weights, complete.weights)
    assert without_times(continued.history) == without_times(complete.history)
    assert np.array_equal(continued.test.logits, complete.test.logits)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"optimiser": {"schedule": "cosine"}}, "optimiser.schedule = cosine"),
        ({"loss": {"primary": "focal_scheduled"}}, "loss.primary = focal_scheduled"),
        (
            {
                "loss": {
                    "primary": "focal",
                    "schedules": {"primary.gamma": {"values": [3, 2], "at": [0, 0.5]}},
                }
            },
            "loss.schedules",
        ),
    ],
)
def test_schedules_of_the_number_of_epochs_are_not_prolonged(
    more: dict[str, Any], field: str
) -> None:
    memory = Memory()
    train(recipe(**more), splits(), memory, Onlooker())
    with pytest.raises(
        InputError, match=f"^epochs: found 4 after 3, with {field}, .*model.weights"
    ):
        train(recipe(**more, epochs=4), splits(), memory, Onlooker())


@pytest.mark.parametrize(("score", "sign"), [("brier", 1), ("accuracy", -1)])
def test_best_weights_are_kept_and_patience_stops_the_run(score: str, sign: int) -> None:
    """With a large rate, the best epoch is followed by two that are no better."""
    config = recipe(
        epochs=40,
        optimiser={"learning_rate": 3.0},
        stop={"keep": "best", "score": score, "patience": 2},
    )
    result = run(config)
    scores = [sign * record["validation"][score] for record in result.history]
    assert result.best_epoch == 1 + int(np.argmin(scores)) == len(scores) - 2
    metrics = evaluate(splits().validation.labels, logits=result.validation.logits, metrics=[score])
    assert sign * metrics[score].value == min(scores)


def test_warm_up_is_neither_kept_nor_counted() -> None:
    """Paper 002, appendix D: the best epoch after the warm-up; here the first epochs are better."""
    stop = {"keep": "best", "score": "brier", "patience": 2, "warmup_epochs": 5}
    result = run(recipe(epochs=40, optimiser={"learning_rate": 3.0}, stop=stop))
    scores = [record["validation"]["brier"] for record in result.history]
    assert np.argmin(scores) < 5
    assert result.best_epoch == 6 + int(np.argmin(scores[5:])) == len(scores) - 2


def test_rows_of_processes_follow_each_other_in_the_step() -> None:
    """So that a loss of the order of rows, as `crl` as released, is that of one process."""
    step = Step(np.random.default_rng(0).permutation(23), "both")
    for processes in (1, 2, 5):
        parts = [shares(step, 2, rank, processes) for rank in range(processes)]
        rows = [part for number in range(2) for part in (mine[number] for mine in parts)]
        assert np.array_equal(np.concatenate(rows), step.rows)


def test_epochs_between_evaluations_are_trained_alike() -> None:
    """The last epoch is measured; the weights are those of a run that measures each epoch."""
    often, seldom = (run(recipe(epochs=5, measure_every=every)) for every in (1, 2))
    assert [record["epoch"] for record in seldom.history] == [2, 4, 5]
    assert without_times(seldom.history) == [without_times(often.history)[i] for i in (1, 3, 4)]
    assert_same(often.weights, seldom.weights)


def test_interleaved_halves_share_no_rows() -> None:
    """Every row is in one step of each epoch; the order changes each epoch."""
    config = recipe(
        loss={"secondary": "mmce"}, interleave={"when": "always", "held_out": 0.25}, batch_size=16
    )
    held_out_rows = set(held_out(config, 100).tolist())
    assert len(held_out_rows) == 25
    orders = set()
    for epoch in range(3):
        steps = epoch_steps(config, 100, epoch, interleaved=True)
        halves = {
            terms: [int(row) for step in steps if step.terms == terms for row in step.rows]
            for terms in ("primary", "secondary")
        }
        assert set(halves["secondary"]) == held_out_rows
        assert sorted(halves["primary"] + halves["secondary"]) == list(range(100))
        assert [step.terms for step in steps] == ["primary"] * 5 + ["secondary"] * 2
        orders.add(tuple(halves["secondary"]))
    assert len(orders) == 3


def test_held_out_rows_do_not_affect_the_primary_loss() -> None:
    """With β = 0 and no momentum, labels of held-out rows have no influence at all."""
    config = recipe(
        loss={"secondary": "mmce", "beta": 0.0},
        interleave={"when": "always"},
        optimiser={"momentum": 0.0},
    )
    data, other = splits(), splits()
    rows = held_out(config, len(other.train))
    other.train.labels[rows] = (other.train.labels[rows] + 1) % 3
    assert_same(run(config, data).weights, run(config, other).weights)


def test_memorised_rows_restart_the_run_interleaved() -> None:
    """Separable rows at a large rate are memorised.

    Interruptions do not change the result.
    """
    config = recipe(
        epochs=8,
        optimiser={"learning_rate": 30.0, "weight_decay": 0.0},
        loss={"secondary": "sb_ece", "beta": 0.1},
        interleave={"when": "auto"},
        batch_size=9,
    )
    data = splits(train=9, noise=0.6, seed=4)
    result = run(config, data)
    assert_same(interrupted(config, data, every=2).weights, result.weights)
    first = [record for record in result.history if not record["interleaved"]]
    interleaved = [record for record in result.history if record["interleaved"]]
    assert result.interleaved
    assert first
    assert first[-1]["train"]["ece"] < 0.01 <= first[-1]["validation"]["ece"] / 2
    assert [record["epoch"] for record in interleaved] == list(range(1, 9))
    assert [record["epoch"] for record in first] == list(range(1, len(first) + 1))


def test_diverged_run_raises_and_saves_no_checkpoint() -> None:
    memory = Memory()
    config = recipe(optimiser={"learning_rate": 1e30}, loss={"primary": "cross_entropy"})
    with pytest.raises(InputError, match=r"^optimiser.learning_rate: .*not finite"):
        train(config, splits(), memory, Onlooker())
    assert memory.data is None


def test_too_few_rows_for_a_step_are_refused() -> None:
    with pytest.raises(InputError, match=r"^batch_size: found 1 training rows"):
        run(recipe(), splits(train=1))


def test_positions_report_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.engine.loop._EVERY_SECONDS", 0.0)
    onlooker = Onlooker()
    train(recipe(), splits(), Memory(), onlooker)
    positions = onlooker.positions
    assert [position.fraction for position in positions] == pytest.approx(
        [(i + 1) / 12 for i in range(12)]
    )
    assert [position.epoch for position in positions] == [1] * 4 + [2] * 4 + [3] * 4
    assert positions[-1].seconds_left == 0 < positions[0].seconds_left
    assert positions[-1].loss == onlooker.records[-1]["loss"]


def test_short_epochs_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each epoch takes .42 s by a clock that advances .07 s at each reading."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 0.07 * next(ticks))
    monkeypatch.setattr("training.engine.loop.time", clock)
    onlooker = Onlooker()
    train(recipe(), splits(), Memory(), onlooker)
    fractions = [position.fraction for position in onlooker.positions]
    assert len(fractions) == 2
    assert 0.3 < fractions[0] < fractions[1] <= 1
    # Time between epochs counts too: about six clock readings in an epoch of four steps.
    first = onlooker.positions[0]
    assert first.seconds_left > 0.07 * 12 * (1 - first.fraction)
