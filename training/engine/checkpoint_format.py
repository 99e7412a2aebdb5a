"""The checkpoint format: one safetensors file of tensors, with JSON counters in its metadata.

A single file keeps tensors and counters consistent: both are of the same step. No pickle is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recalib.core.decoding import decoder_of
from recalib.errors import CorruptError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_FORMAT = "recalib-checkpoint-2"


class RunIdentity(msgspec.Struct, frozen=True):
    """What the weights of a run depend on; a run resumes only from its own checkpoint."""

    #: The fields of the recipe that the weights depend on.
    recipe: dict[str, Any]
    #: Digests of the data and of the initial weights; empty for random weights.
    data: str
    weights: str


class Counters(msgspec.Struct):
    """The position of a run and its metrics so far."""

    run: RunIdentity
    epoch: int = 0
    #: Finished steps of this epoch.
    step: int = 0
    #: Sum of the objective over the steps of this epoch.
    loss_sum: float = 0.0
    interleaved: bool = False
    #: Epochs since the best epoch, and that epoch's score and number.
    without_better: int = 0
    best_score: float | None = None
    best_epoch: int | None = None
    #: One record for each finished epoch.
    history: list[dict[str, Any]] = []
    #: The state of fp16's scaler of gradients.
    scaler: dict[str, Any] = {}


@dataclass
class _Tensors:
    """Tensors by name; a prefix of the name identifies the owner."""

    all: dict[str, Tensor] = field(default_factory=dict)

    def put(self, prefix: str, tensors: dict[str, Tensor]) -> None:
        self.all |= {f"{prefix}/{name}": tensor for name, tensor in snapshot(tensors).items()}

    def get(self, prefix: str) -> dict[str, Tensor]:
        start = f"{prefix}/"
        items = self.all.items()
        return {
            name.removeprefix(start): tensor for name, tensor in items if name.startswith(start)
        }


def snapshot(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the CPU, which later steps do not change."""
    return {
        name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()
    }


def save_state(
    counters: Counters,
    modules: Mapping[str, nn.Module],
    optimiser: Optimizer,
    best: dict[str, Tensor] | None,
) -> bytes:
    """Return the bytes of a checkpoint with the states of `modules` by name."""
    tensors = _Tensors()
    for name, module in modules.items():
        tensors.put(name, module.state_dict())
    tensors.put("best", best or {})
    for index, values in optimiser.state_dict()["state"].items():
        # SGD without momentum stores None.
        state = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        tensors.put(f"optimiser/{index}", state)
    metadata = {"format": _FORMAT, "counters": msgspec.json.encode(counters).decode()}
    return safetensors.torch.save(tensors.all, metadata=metadata)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read."""

    counters: Counters
    tensors: _Tensors

    def restore(
        self, modules: Mapping[str, nn.Module], optimiser: Optimizer
    ) -> dict[str, Tensor] | None:
        """Restore modules by name and the optimiser; return the best weights, if any."""
        for name, module in modules.items():
            module.load_state_dict(self.tensors.get(name))
        _restore(optimiser, self.tensors)
        return self.tensors.get("best") or None


def read_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint; raise `CorruptError` if it is none, or damaged."""
    try:
        tensors = _Tensors(safetensors.torch.load(data))
        length = int.from_bytes(data[:8], "little")
        header = msgspec.json.decode(data[8 : 8 + length])["__metadata__"]
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']!r:.40}")
        counters = decoder_of(Counters).decode(header["counters"])
    except (safetensors.SafetensorError, msgspec.MsgspecError, KeyError, ValueError) as error:
        raise CorruptError(f"the checkpoint is damaged: {error}") from None
    return Checkpoint(counters, tensors)


def read_shared(data: bytes | None, fabric: Fabric) -> Checkpoint | None:
    """Return the checkpoint of the first process in every process, since disks may differ.

    Tensors pass one after another, so that a device needs memory for the largest alone.

    Raises
    ------
    CorruptError: as `read_checkpoint`, in the first process.
    """
    checkpoint = None if data is None else read_checkpoint(data)
    if fabric.world_size == 1:
        return checkpoint
    header = None
    if checkpoint is not None:
        items = checkpoint.tensors.all.items()
        header = checkpoint.counters, {name: (value.shape, value.dtype) for name, value in items}
    header = fabric.broadcast(header)
    if header is None:
        return None
    tensors = {}
    for name, (shape, dtype) in header[1].items():
        empty = torch.empty(shape, dtype=dtype)
        tensor = empty if checkpoint is None else checkpoint.tensors.all[name]
        content = tensor.reshape(-1).view(torch.uint8).to(fabric.device)
        torch.distributed.broadcast(content, 0)
        tensors[name] = content.cpu().view(dtype).reshape(shape)
    return Checkpoint(header[0], _Tensors(tensors))


def _restore(optimiser: Optimizer, tensors: _Tensors) -> None:
    state_dict = optimiser.state_dict()
    state: dict[int, dict[str, Tensor | None]] = {}
    for name, value in tensors.get("optimiser").items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = value
    state_dict["state"] = state
    optimiser.load_state_dict(state_dict)
