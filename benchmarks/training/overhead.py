"""`python -m benchmarks.training.overhead`: the share of a training step that each loss takes.

A step is forward, backward and SGD. It is timed with cross-entropy. Each loss is timed alone,
forward and backward, on logits of the same shape. In the step, a primary loss takes the place of
cross-entropy, and a regulariser comes on top of it. Whole steps are not compared, because on a busy
machine they differ by more than the losses do.

On a CPU the clock is that of the thread. With CUDA it is wall time after synchronisation, the
network is in bf16 with its channels last, and the time of a loss is an upper bound: in a training
step its kernels are launched while others run.

`--pixels` compares losses with cross-entropy of torch on logits (1, 21, 512, 512), in one thread:
the time of forward and backward, and the bytes of the arrays that are kept for backward.

`docs/decisions/0004-one-definition-per-loss.md` gives what it printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import interleaved
from recalib.losses import LOSSES, SECONDARY
from recalib.losses.crl import Crl
from training.models import build


@dataclass(frozen=True)
class Cost:
    """Seconds of a loss alone, and of a training step with it."""

    alone: float
    step: float


def measure(
    model: str, rows: int, classes: int, names: list[str], times: int, size: int = 16
) -> dict[str, Cost]:
    """Return the cost of each loss for `model` on `rows` images of `size` x `size`.

    Parameters
    ----------
    times: repetitions of the losses, of which the shortest counts; a fifth of them for the step.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    facts = {"features": 3 * size * size}
    network = build(model, classes, facts=facts).to(device).train()
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    network = network.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(network.parameters(), 1e-6, momentum=0.9)
    images = torch.randn(rows, 3, size, size, device=device)
    images = images.contiguous(memory_format=layout)
    logits = 3 * torch.randn_like(network(images)).requires_grad_()
    labels = torch.randint(classes, (rows, *logits.shape[2:]), device=device)
    losses = {
        name: LOSSES[name](**({"samples": rows} if name == "crl" else {})).to(device)
        for name in ["cross_entropy", *names]
    }

    def step() -> None:
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outputs = network(images)
        _value(losses["cross_entropy"], outputs, labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    def gradient(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(_value(losses[name], logits, labels), logits)

    step_seconds = _shortest({"step": step}, max(times // 5, 1), device)["step"]
    loss_seconds = _shortest({name: gradient(name) for name in losses}, times, device)
    other_seconds = step_seconds - loss_seconds["cross_entropy"]
    return {
        name: Cost(
            loss_seconds[name],
            (step_seconds if name in SECONDARY else other_seconds) + loss_seconds[name],
        )
        for name in names
    }


def _shortest(
    actions: dict[str, Callable[[], object]], times: int, device: torch.device
) -> dict[str, float]:
    def synchronised(action: Callable[[], object]) -> Callable[[], object]:
        return lambda: (action(), torch.cuda.synchronize())

    clock = time.thread_time
    if device.type == "cuda":
        actions = {name: synchronised(action) for name, action in actions.items()}
        clock = time.perf_counter
    interleaved(actions, 1, clock)  # the first run allocates memory
    return {name: min(seconds) for name, seconds in interleaved(actions, times, clock).items()}


def _value(loss: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    indices = {}
    if isinstance(loss, Crl):
        indices["indices"] = torch.arange(len(labels), device=labels.device)
    return loss(logits, labels, **indices)


def saved_bytes(action: Callable[[], object]) -> int:
    """Return the bytes of the arrays that autograd keeps, each array once."""
    sizes: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        result = action()  # a result that is freed would free its arrays
    del result
    return sum(sizes.values())


def pixels(names: list[str], times: int) -> dict[str, tuple[float, float]]:
    """Return the time and the saved bytes of each loss, over those of torch's cross-entropy."""
    torch.manual_seed(0)
    logits = (3 * torch.randn(1, 21, 512, 512)).requires_grad_()
    labels = torch.randint(21, (1, 512, 512))
    losses: dict[str, Callable[..., Tensor]] = {"torch": functional.cross_entropy}
    losses |= {name: LOSSES[name]() for name in names}
    values = {name: partial(loss, logits, labels) for name, loss in losses.items()}
    actions = {
        name: lambda value=value: torch.autograd.grad(value(), logits)
        for name, value in values.items()
    }
    seconds = _shortest(actions, times, logits.device)
    saved = {name: saved_bytes(value) for name, value in values.items()}
    return {
        name: (seconds[name] / seconds["torch"], saved[name] / saved["torch"]) for name in names
    }


def main() -> None:
    """Print a table of the losses."""
    # Imported here because `gpu` needs no table.
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.overhead")
    parser.add_argument("--model", default="resnet8")
    parser.add_argument("--rows", type=int, default=128, help="images of a batch")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--size", type=int, default=16, help="height and width of an image")
    parser.add_argument("--times", type=int, default=100, help="repetitions; the shortest counts")
    parser.add_argument("--linear", action="store_true", help="without quadratic losses")
    parser.add_argument("--pixels", action="store_true", help="time and memory for dense logits")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.pixels:
        table = Table("loss", "time", "saved bytes", title="over torch's cross-entropy", box=None)
        for name, ratios in pixels(["cross_entropy", "sb_ece", "s_avuc"], options.times).items():
            table.add_row(name, *(f"{ratio:.2f}" for ratio in ratios))
        Console().print(table)
        return
    names = [name for name in LOSSES if not options.linear or "²" not in LOSSES[name].cost]
    costs = measure(
        options.model, options.rows, options.classes, names, options.times, options.size
    )
    title = f"{options.model}, {options.rows} images, {options.classes} classes"
    columns = ("loss", "alone, ms", "step, ms", "share of the step", "step of cross-entropy")
    table = Table(*columns, title=title, box=None)
    for name, cost in costs.items():
        share, ratio = cost.alone / cost.step, cost.step / costs["cross_entropy"].step
        cells = (f"{1e3 * cost.alone:.2f}", f"{1e3 * cost.step:.2f}", f"{share:.1%}")
        table.add_row(name, *cells, f"{ratio:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
