"""Print how far losses over eight processes are from those of one process, as JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from recalib.losses import LOSSES, WHOLE_BATCH
from recalib.losses.crl import Crl

_PROCESSES = 8
_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in sorted(WHOLE_BATCH)},
    "sb_ece, ignored rows": ("sb_ece", {"ignore_index": 4}),
    "crl, released": ("crl", {"variant": "released", "samples": 70}),
}


def _data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(70, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (70,), generator=generator)
    return inputs, labels


def _network() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(6, 5, dtype=torch.float64)


def _value(case: str, network: nn.Module, rows: Tensor, *, gather: bool) -> Tensor:
    name, options = _CASES[case]
    loss = LOSSES[name](**options, gather=gather)
    inputs, labels = _data()
    if "ignore_index" in options:
        labels[::3] = options["ignore_index"]
    if not isinstance(loss, Crl):
        result: Tensor = loss(network(inputs[rows]), labels[rows])
        return result
    loss.history = torch.arange(70, dtype=torch.int32) % 3
    loss.start_epoch(3, 10)
    value: Tensor = loss(network(inputs[rows]), labels[rows], indices=rows)
    if gather:  # every process counts the correct predictions of all rows
        correct = network(inputs).argmax(dim=1) == labels
        assert torch.equal(loss.history, torch.arange(70) % 3 + correct)
    return value


def _gradient(network: nn.Module) -> Tensor:
    result = torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])
    network.zero_grad()
    return result


def _work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=_PROCESSES
    )
    network = DistributedDataParallel(_network())
    # The last process has fewer rows, or none that count.
    rows = torch.arange(70).split(9)[rank]
    results = {}
    for case in _CASES:
        for gather in (True, False):
            value = _value(case, network, rows, gather=gather)
            value.backward()
            results[f"{case}/{gather}"] = (value.item(), _gradient(network).tolist())
    (folder / str(rank)).write_text(json.dumps(results))
    distributed.destroy_process_group()


def main() -> None:
    """Fork the processes, and compare."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        children = []
        for rank in range(_PROCESSES):
            if not (child := os.fork()):
                status = 1
                try:
                    _work(rank, folder)
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        statuses = [os.waitpid(child, 0)[1] for child in children]
        assert not any(statuses), statuses
        results = [json.loads((folder / str(rank)).read_text()) for rank in range(_PROCESSES)]
    differences: dict[str, dict[str, float]] = {}
    for case in _CASES:
        network = _network()
        value = _value(case, network, torch.arange(70), gather=False)
        value.backward()
        expected = _gradient(network)
        scale = float(expected.abs().max())
        far: dict[str, float] = {"value": 0.0, "gradient": 0.0, "without gather": 0.0}
        for result in results:
            gathered, alone = result[f"{case}/True"], result[f"{case}/False"]
            far["value"] = max(far["value"], abs(gathered[0] - value.item()))
            for key, of_process in (("gradient", gathered), ("without gather", alone)):
                gap = (torch.tensor(of_process[1], dtype=torch.float64) - expected).abs().max()
                far[key] = max(far[key], float(gap) / scale)
        differences[case] = far
    sys.stdout.write(json.dumps(differences))


if __name__ == "__main__":
    main()
