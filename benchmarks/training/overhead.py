"""`python -m benchmarks.training.overhead`: what each loss costs, as ratios of one run.

On a CPU, the loss alone, forward and backward, on float32 logits of 4096x1000, over its
memory-bandwidth floor: any loss whose gradient goes through a softmax has to read the logits, keep
what backward needs, read that and write the gradient, four passes, as two copies of the logits
move. The copies are timed in turns with the losses, on one thread and by the thread's own clock.
What is freed is kept by the process: else some losses, and not always the same, would pay for the
system's handing out pages, which has nothing to do with them.

With CUDA, a whole step of ResNet-50 on 128 images of 32x32 in bf16 over cross-entropy's. Without,
`--step` says what a step of resnet8 on 128 images of 16x16 would take over cross-entropy's: the
network's own time, and each loss alone on logits of 128x10, where all that counts is of how many
operations it is made. Whole steps would be told apart by nothing but the machine's noise.

Quadratic losses (`mmce`, `crl`, `kde_ece`) and `cpc`, which is quadratic in classes, have no goal;
on the CPU they are timed on 256x100 and the ratio there is said.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks.timing import Goal, interleaved
from recalib.losses import LOSSES
from recalib.losses.crl import Crl
from training.models import build

__all__ = ["QUADRATIC", "alone", "by_parts", "steps"]

QUADRATIC = ("mmce", "crl", "kde_ece", "cpc")
_BATCH = 128
#: Of a large batch.
_ROWS = 4096
#: What users of torch have, beside ours.
_TORCH = "torch's own cross-entropy"
#: Of malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def alone(rows: int, classes: int, times: int, names: list[str]) -> dict[str, float]:
    """Return each loss's forward and backward over two copies of the logits; `copies` is 1."""
    seconds = _alone(rows, classes, times, names)
    return {name: one / seconds["copies"] for name, one in seconds.items()}


def _alone(rows: int, classes: int, times: int, names: list[str]) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(rows, classes, generator=generator)).requires_grad_()
    labels = torch.randint(classes, (rows,), generator=generator)
    held = torch.empty(rows, classes)

    def copies() -> None:
        for _ in range(2):
            held.copy_(logits.detach())

    def act(name: str) -> Callable[[], object]:
        loss = nn.CrossEntropyLoss() if name == _TORCH else LOSSES[name]()
        return lambda: torch.autograd.grad(_value(loss, logits, labels), logits)

    acts = {"copies": copies} | {name: act(name) for name in names}
    for one in acts.values():
        one()
    return {name: min(some) for name, some in interleaved(acts, times, time.thread_time).items()}


def by_parts(model: str, times: int) -> dict[str, float]:
    """Return the time of a step with each loss over that with cross-entropy, on a CPU.

    The sum of a step with cross-entropy and of what the loss alone takes more.
    """
    step = steps(model, torch.device("cpu"), times, ["cross_entropy"])["cross_entropy"]
    seconds = _alone(_BATCH, 10, 20 * times, list(LOSSES))
    usual = seconds["cross_entropy"]
    return {name: 1 + (seconds[name] - usual) / step for name in LOSSES}


def steps(model: str, device: torch.device, times: int, names: list[str]) -> dict[str, float]:
    """Return the seconds of a step with each loss."""
    torch.manual_seed(0)
    size = 32 if device.type == "cuda" else 16
    facts = {"features": 3 * size * size}
    network = build(model, 10, facts=facts).to(device).train()
    images = torch.randn(_BATCH, 3, size, size, device=device)
    labels = torch.randint(10, (_BATCH,), device=device)
    optimiser = torch.optim.SGD(network.parameters(), 1e-6)
    acts = {
        name: _step(network, optimiser, images, labels, LOSSES[name]().to(device)) for name in names
    }
    for one in acts.values():
        for _ in range(3):
            one()
    clock = time.perf_counter if device.type == "cuda" else time.thread_time
    return {name: min(some) for name, some in interleaved(acts, times, clock).items()}


def _step(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    loss: nn.Module,
) -> Callable[[], None]:
    on_gpu = images.device.type == "cuda"

    def act() -> None:
        with torch.autocast(images.device.type, torch.bfloat16, enabled=on_gpu):
            logits = network(images)
        _value(loss, logits, labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
        if on_gpu:
            torch.cuda.synchronize()

    return act


def _keep_memory() -> None:
    """Have the C library hand freed memory out again instead of giving it back; glibc alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _value(loss: nn.Module, logits: Tensor, labels: Tensor) -> Tensor:
    if isinstance(loss, Crl):
        indices = torch.arange(len(labels), device=labels.device)
        value: Tensor = loss(logits, labels, indices=indices)
    else:
        value = loss(logits, labels)
    return value


def _goals(asked: argparse.Namespace) -> Iterator[Goal]:
    """Yield what is promised: 1.10 of cross-entropy's step, or 3 times the floor."""
    if torch.cuda.is_available():
        seconds = steps("resnet50", torch.device("cuda"), 20 * asked.times, list(LOSSES))
        for name, one in seconds.items():
            if name not in QUADRATIC:
                ratio = one / seconds["cross_entropy"]
                yield Goal(f"a step of ResNet-50 with {name} over cross_entropy", ratio, 1.10, True)
        return
    linear = [name for name in LOSSES if name not in QUADRATIC]
    found = alone(_ROWS, 1000, asked.times, [*linear, _TORCH])
    for name in linear:
        yield Goal(f"{name} over its memory-bandwidth floor", found[name], 3.0, True)
    usual = found["cross_entropy"]
    _print(
        f"alone over cross_entropy alone, {_ROWS}x1000",
        {n: found[n] / usual for n in [*linear, _TORCH]},
    )


def main() -> None:
    """Print goals, and the quadratic losses' costs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.overhead")
    parser.add_argument("--times", type=int, default=40, help="of which the shortest counts")
    parser.add_argument("--step", action="store_true", help="whole steps of resnet8, on a CPU")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    _keep_memory()
    if asked.step:
        _print("step over cross_entropy's, 128x10", by_parts("resnet8", asked.times))
        return
    for goal in _goals(asked):
        print(goal, flush=True)
    few = alone(_ROWS, 10, asked.times, ["cross_entropy", "brier", "sb_ece", _TORCH])
    _print(
        f"alone over {_TORCH}, {_ROWS}x10", {n: few[n] / few[_TORCH] for n in few if n != "copies"}
    )
    found = alone(256, 100, asked.times, ["cross_entropy", *QUADRATIC])
    over = {name: one / found["cross_entropy"] for name, one in found.items() if name != "copies"}
    _print("alone over cross_entropy alone, 256x100", over)


def _print(title: str, ratios: dict[str, float]) -> None:
    table = Table("loss", title, box=None)
    for name, ratio in ratios.items():
        table.add_row(name, f"{ratio:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
