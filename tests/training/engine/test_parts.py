"""Parts of the engine: learning rates, metrics, predictions, checkpoints and seeds."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from scipy.special import log_softmax
from torch import nn

from recalib.errors import CorruptError, InputError, UnavailableError
from recalib.recipe import Optimiser
from tests.training.engine.tiny import Memory, Onlooker, recipe, splits
from training.engine.batches import seed_of
from training.engine.checkpoint_format import read_checkpoint
from training.engine.checkpoints import FolderCheckpoints
from training.engine.evaluate import measure, predict, weight_norms
from training.engine.loop import train
from training.engine.optimizer import learning_rate, optimiser_for

STEPS = 4


@pytest.mark.parametrize(
    ("part", "make"),
    [
        (
            {"milestones": [2, 5], "factor": 0.2},
            lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2 * STEPS, 5 * STEPS], 0.2),
        ),
        (
            {"schedule": "cosine"},
            lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 7 * STEPS),
        ),
        (
            {"schedule": "constant"},
            lambda o: torch.optim.lr_scheduler.ConstantLR(o, 1.0),
        ),
        (
            {"schedule": "constant", "warmup_epochs": 2},
            lambda o: torch.optim.lr_scheduler.LinearLR(o, 1 / 8, 1.0, 7),
        ),
    ],
)
def test_learning_rates_match_torch(part: dict[str, Any], make: Any) -> None:
    """Step by step, over seven epochs of four."""
    config = Optimiser(**part)
    weight = nn.Parameter(torch.zeros(1))
    optimiser = optimiser_for(config, [weight])
    scheduler = make(optimiser)
    for step in range(7 * STEPS):
        ours = learning_rate(config, step / STEPS, 7, 1 / STEPS)
        assert ours == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-9), step
        optimiser.step()
        scheduler.step()


def test_a_warm_up_comes_before_the_schedule() -> None:
    """The rate rises to its full value, and then falls to 0."""
    part = Optimiser(schedule="cosine", warmup_epochs=1.0, learning_rate=1.0)
    rates = [learning_rate(part, step / STEPS, 5, 1 / STEPS) for step in range(5 * STEPS)]
    assert rates[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates[4:] == pytest.approx([0.5 * (1 + np.cos(np.pi * i / 16)) for i in range(16)])


@pytest.mark.parametrize(
    ("name", "rate"), [("sgd", 0.1), ("adagrad", 0.05), ("adam", 0.001), ("adamw", 0.001)]
)
def test_each_optimiser_has_its_usual_rate(name: Any, rate: float) -> None:
    optimiser = optimiser_for(Optimiser(name=name), [nn.Parameter(torch.zeros(1))])
    assert type(optimiser).__name__.lower() == name
    assert optimiser.param_groups[0]["lr"] == rate
    assert optimiser.param_groups[0]["weight_decay"] == 5e-4


def test_measures_match_loops() -> None:
    """NLL of right and wrong rows and entropy, in float64 row by row."""
    rng = np.random.default_rng(0)
    logits = (3 * rng.standard_normal((50, 4))).astype(np.float32)
    labels = rng.integers(0, 4, 50)
    measures = measure(logits, labels)
    nll: dict[bool, list[float]] = {True: [], False: []}
    entropy = []
    for z, y in zip(logits, labels, strict=True):
        log_p = log_softmax(z.astype(np.float64))
        nll[bool(z.argmax() == y)].append(-log_p[y])
        entropy.append(-(np.exp(log_p) * log_p).sum())
    assert measures["nll_right"] == pytest.approx(np.mean(nll[True]), rel=1e-5)
    assert measures["nll_wrong"] == pytest.approx(np.mean(nll[False]), rel=1e-5)
    assert measures["nll"] == pytest.approx(np.mean(nll[True] + nll[False]), rel=1e-5)
    assert measures["entropy"] == pytest.approx(np.mean(entropy), rel=1e-5)
    assert measures["accuracy"] == len(nll[True]) / 50


def test_mean_without_rows_is_none() -> None:
    """Probabilities of exactly 0 do not contribute to the entropy."""
    logits = np.array([[500.0, 0.0], [0.0, 500.0]], np.float32)
    right = measure(logits, np.array([0, 1]))
    assert (right["nll_wrong"], right["nll_right"], right["entropy"]) == (None, 0.0, 0.0)
    assert measure(logits, np.array([1, 0]))["nll_right"] is None


def test_predictions_are_of_the_requested_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is kept over several batches, and layers keep their mode."""
    monkeypatch.setattr("training.engine.evaluate._BATCH", 16)
    network = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3))
    network[0].eval()
    split = splits().train
    rows = np.array([100, 3, 3, *range(40)])
    logits = predict(Fabric(accelerator="cpu", devices=1), network, split, rows)
    single_rows = [network.eval()(split.batch([row])).detach().numpy()[0] for row in rows]
    np.testing.assert_allclose(logits, single_rows, rtol=1e-5, atol=1e-6)
    network.train()
    network[0].eval()
    predict(Fabric(accelerator="cpu", devices=1), network, split)
    assert [module.training for module in network.modules()] == [True, False, True]


def test_weight_norms_cover_all_weights() -> None:
    network = nn.Module()
    network.body, network.head = nn.Linear(2, 2), nn.Linear(2, 3)
    numbers = [parameter.detach().numpy().ravel() for parameter in network.parameters()]
    head = [parameter.detach().numpy().ravel() for parameter in network.head.parameters()]
    assert weight_norms(network) == pytest.approx(
        {
            "weight_norm": np.linalg.norm(np.concatenate(numbers)),
            "head_norm": np.linalg.norm(np.concatenate(head)),
        }
    )


def test_full_disk_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    """The kernel refuses the write; nothing else is left behind."""
    checkpoints = FolderCheckpoints(tmp_path)
    assert checkpoints.load() is None
    checkpoints.save(b"the previous checkpoint")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(UnavailableError, match="the previous checkpoint remains"):
            checkpoints.save(b"x" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert checkpoints.load() == b"the previous checkpoint"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.safetensors"]


def test_damaged_checkpoint_is_an_error() -> None:
    """Truncated files, and files of another format."""
    memory = Memory()
    train(recipe(epochs=1), splits(), memory, Onlooker())
    checkpoint = memory.data
    assert checkpoint is not None
    for data in (
        checkpoint[:-1],
        checkpoint[:100],
        b"",
        checkpoint.replace(b"checkpoint-2", b"checkpoint-9"),
    ):
        memory.data = data
        with pytest.raises(CorruptError, match="checkpoint is damaged"):
            train(recipe(epochs=1), splits(), memory, Onlooker())


def test_seeds_are_distinct() -> None:
    """Neighbouring steps, epochs and processes draw other numbers; the same ones draw the same."""
    places = [(s, e, t) for s in range(10) for e in range(10) for t in range(10)]
    seeds = [seed_of(*place) for place in places]
    assert len(set(seeds)) == 1000
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seed_of(1, 2, 3) == seed_of(1, 2, 3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_run_in_half_precision_resumes_bit_for_bit(precision: str) -> None:
    """The network computes in half precision; weights and objective are float32."""
    config = recipe(precision=precision, clip_norm=1.0, checkpoint_steps=1)
    memory, saved = Memory(), []
    uninterrupted = train(config, splits(), memory, Onlooker(lambda: saved.append(memory.data)))
    exact = train(recipe(clip_norm=1.0, checkpoint_steps=1), splits(), Memory(), Onlooker())
    memory.data = saved[6]
    assert memory.data is not None
    assert bool(read_checkpoint(memory.data).counters.scaler) == (precision == "fp16")
    resumed = train(config, splits(), memory, Onlooker())
    for name, weight in uninterrupted.weights.items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, resumed.weights[name])
        assert not torch.equal(weight, exact.weights[name])
        torch.testing.assert_close(weight, exact.weights[name], rtol=0.05, atol=0.05)


@pytest.mark.parametrize(("device", "module"), [("cuda", torch.cuda), ("mps", torch.backends.mps)])
def test_missing_device_is_refused(
    device: str, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_available", lambda: False)
    with pytest.raises(InputError, match=rf"^device: found {device}"):
        train(recipe(device=device), splits(), Memory(), Onlooker())
