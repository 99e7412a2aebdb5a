"""Options that make training faster on a GPU: kernels, precision, memory format, compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from recalib.errors import InputError
from recalib.recipe import Recipe
from tests.training.engine.tiny import Memory, Onlooker, recipe, splits
from training.data import Split, Splits
from training.data.arrays import Array
from training.engine import loop
from training.engine.batches import Step
from training.engine.kernels import choose_kernels, float32_kernels
from training.engine.loop import TrainingResult, train
from training.engine.objective import TrainingObjective
from training.engine.optimizer import optimiser_for
from training.engine.run_state import begin
from training.models import MODELS, build


def needs_cuda(test: Callable[..., None]) -> Callable[..., None]:
    """Skip a slow test without CUDA; compilers and the mode of the last test warn."""
    for mark in (
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
        pytest.mark.slow,
        pytest.mark.filterwarnings("default"),
    ):
        test = mark(test)
    return test


class Convolutions(nn.Module):
    """A small network for images, which records the layout of its inputs."""

    channels_last: set[bool]

    def __init__(self, classes: int, *, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)
        )
        self.head = nn.Linear(8, classes)

    def forward(self, images: Tensor) -> Tensor:
        if len(images) > 2:  # of all batches, two rows are a check
            self.channels_last.add(images.is_contiguous(memory_format=torch.channels_last))
        logits: Tensor = self.head(self.body(images).mean(dim=(2, 3)))
        return logits


@pytest.fixture(autouse=True)
def convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "convolutions", Convolutions)
    monkeypatch.setattr(Convolutions, "channels_last", set(), raising=False)


@pytest.fixture
def flags() -> Iterator[Callable[[], tuple[object, ...]]]:
    """Return the flags of the kernels; they are restored afterwards."""

    def read() -> tuple[object, ...]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.allow_tf32,
            torch.get_float32_matmul_precision(),
        )

    before = read()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    yield read
    torch.use_deterministic_algorithms(bool(before[0]))
    torch.backends.cudnn.benchmark = bool(before[1])
    torch.backends.cudnn.allow_tf32 = bool(before[2])
    torch.set_float32_matmul_precision(str(before[3]))
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def images(rows: int = 40) -> Splits:
    rng = np.random.default_rng(0)
    parts = []
    for count in (rows, 12, 12):
        labels = rng.integers(0, 3, count)
        pixels = rng.standard_normal((count, 3, 8, 8)) + labels[:, None, None, None]
        parts.append(Split.with_all_rows(Array(pixels), labels))
    return Splits(*parts, classes=3, facts={"channels": 3})


def run(config: Recipe, data: Splits) -> TrainingResult:
    return train(config, data, Memory(), Onlooker())


def assert_close(first: TrainingResult, second: TrainingResult) -> None:
    assert first.weights.keys() == second.weights.keys()
    for name, weight in first.weights.items():
        torch.testing.assert_close(second.weights[name], weight, rtol=1e-4, atol=1e-5)


def test_kernels_are_reproducible_or_fast(flags: Callable[[], tuple[object, ...]]) -> None:
    choose_kernels(deterministic=True)
    assert flags() == (True, False, False, "highest")
    choose_kernels(deterministic=False)
    fast = (False, True, True, "high")
    assert flags() == fast
    with float32_kernels():
        assert flags() == (False, True, False, "highest")
    assert flags() == fast


def test_predictions_are_float32_after_training_in_bf16() -> None:
    """They are those of the saved weights in a plain network, bit for bit."""
    data, config = images(), recipe(model={"name": "convolutions"}, precision="bf16")
    trained = run(config, data)
    network = build("convolutions", 3, facts={"channels": 3})
    network.load_state_dict(trained.weights)
    rows = data.validation.batch(range(12))
    assert isinstance(rows, Tensor)
    with torch.no_grad():
        logits = network.eval()(rows)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = network(rows)
    assert trained.validation.logits.dtype == np.float32
    assert np.array_equal(trained.validation.logits, logits.numpy())
    assert not np.array_equal(logits.numpy(), rounded.float().numpy())
    assert trained.history[-1]["validation"] == trained.validation.measures
    exact = run(config.model_copy(update={"precision": "32"}), data)
    assert not torch.equal(trained.weights["head.weight"], exact.weights["head.weight"])


def test_channels_last_changes_the_layout_only() -> None:
    data, config = images(), recipe(model={"name": "convolutions"}, epochs=2)
    plain = run(config, data)
    assert Convolutions.channels_last == {False}
    Convolutions.channels_last.clear()
    last = run(config.model_copy(update={"channels_last": True}), data)
    assert Convolutions.channels_last == {True}
    assert_close(plain, last)
    with pytest.raises(InputError, match=r"^channels_last: found true, for rows \(2,\)"):
        run(recipe(channels_last=True), splits())


@pytest.mark.parametrize(
    "more", [{}, {"loss": {"secondary": "crl"}}, {"mixing": {"method": "mixup"}}]
)
def test_step_does_not_wait_for_the_device(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of the device `meta` have no values: a step that reads one raises an error."""
    config = recipe(clip_norm=1.0, ema_decay=0.9, **more)
    data, fabric = splits(), Fabric(accelerator="cpu", devices=1)
    start = begin(config, data, fabric, None, interleaved=False)
    model = start.model.to_empty(device="meta")
    monkeypatch.setattr(loop, "to_device", lambda _, batch: batch.to("meta"))
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # has no `meta`
    run = replace(
        start,
        model=model,
        network=fabric.setup_module(model, move_to_device=False),
        objective=TrainingObjective(config.loss, len(data.train)).to("meta"),
        optimiser=optimiser_for(config.optimiser, model.parameters()),
    )
    run.loss_sum = torch.zeros((), device="meta")
    labels = torch.zeros(32, dtype=torch.int64, device="meta")
    batches = iter([(torch.zeros(32, 2, device="meta"), labels)])
    loop._step(run, Step(np.arange(32), "both"), 0, batches)
    assert run.loss_sum.device.type == "meta"
    assert all(parameter in run.optimiser.state for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_network_has_the_same_weights(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only rounding differs, the names do not; predictions and a resumed run are equal."""
    compile_network, modes = torch.compile, set()

    def compile_for_backend(model: nn.Module, **options: Any) -> Any:
        # Fabric repeats the call with the options of the inner one.
        modes.add(options.pop("mode", "default"))
        return compile_network(model, **{**options, "backend": backend})

    monkeypatch.setattr(torch, "compile", compile_for_backend)
    monkeypatch.delattr(Convolutions, "channels_last")
    monkeypatch.setattr(Convolutions, "forward", _forward)
    data = images(rows=32)  # batches of one shape: each shape is compiled
    config = recipe(model={"name": "convolutions"}, ema_decay=0.5, checkpoint_steps=1)
    plain = run(config, data)
    compiled = config.model_copy(update={"compile": "default"})
    memory, saved = Memory(), []
    complete = train(compiled, data, memory, Onlooker(lambda: saved.append(memory.data)))
    assert modes == {"default"}
    assert_close(plain, complete)
    memory.data = saved[1]
    again = train(compiled, data, memory, Onlooker())
    for name, weight in complete.weights.items():
        assert torch.equal(again.weights[name], weight)


def _forward(self: Convolutions, images: Tensor) -> Tensor:
    logits: Tensor = self.head(self.body(images).mean(dim=(2, 3)))
    return logits


@needs_cuda
@pytest.mark.parametrize(
    "more",
    [
        {"channels_last": True},
        {"deterministic": False},
        {"compile": "default"},
        {"compile": "reduce-overhead", "channels_last": True, "ema_decay": 0.9, "clip_norm": 1.0},
    ],
)
def test_gpu_trains_as_the_cpu(
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    flags: Callable[[], tuple[object, ...]],
) -> None:
    """In float32, up to rounding; TF32 rounds more."""
    monkeypatch.setattr(Convolutions, "forward", _forward)
    data, config = images(), recipe(model={"name": "convolutions"}, epochs=2, precision="32")
    same = {name: value for name, value in more.items() if name in ("ema_decay", "clip_norm")}
    cpu = run(config.model_copy(update=same), data)
    gpu = run(config.model_copy(update={**more, "device": "cuda"}), data)
    for name, weight in cpu.weights.items():
        torch.testing.assert_close(gpu.weights[name], weight, rtol=2e-2, atol=2e-3)


@needs_cuda
def test_gpu_gives_the_same_bits_again(flags: Callable[[], tuple[object, ...]]) -> None:
    """Also after an interruption, and float32 logits after training in bf16."""
    data = images()
    config = recipe(model={"name": "convolutions"}, device="cuda", checkpoint_steps=1)
    memory, saved = Memory(), []
    first = train(config, data, memory, Onlooker(lambda: saved.append(memory.data)))
    memory.data = saved[3]
    again = train(config, data, memory, Onlooker())
    for name, weight in first.weights.items():
        assert torch.equal(again.weights[name], weight)
    network = build("convolutions", 3, facts={"channels": 3})
    network.load_state_dict(first.weights)
    rows = data.test.batch(range(12))
    assert isinstance(rows, Tensor)
    with torch.no_grad():
        logits = network.eval()(rows).numpy()
    np.testing.assert_allclose(first.test.logits, logits, rtol=1e-4, atol=1e-4)


@needs_cuda
def test_gpu_step_does_not_synchronise(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch raises an error where the host would wait for the device."""
    steps = loop._step

    def step(*arguments: Any) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            steps(*arguments)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(loop, "_step", step)
    more: dict[str, Any] = {"ema_decay": 0.9, "clip_norm": 1.0, "mixing": {"method": "cutmix"}}
    run(recipe(model={"name": "convolutions"}, device="cuda", **more), images())
