"""A run in the middle, as the bytes of one safetensors file: tensors, and JSON in its metadata.

One file, so that tensors and counters are of the same step or not there at all. No pickle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import safetensors
import safetensors.torch
from torch import Tensor, nn
from torch.optim import Optimizer

from recalib.decoding import decoder_of
from recalib.errors import CorruptError, InputError

__all__ = ["Counters", "load_state", "save_state", "snapshot"]

_FORMAT = "recalib-checkpoint-1"


class Counters(msgspec.Struct):
    """Where a run is, and what it has measured so far."""

    #: Digests of recipe and data: a checkpoint of another run is not gone on from.
    run: str
    epoch: int = 0
    #: Steps done of this epoch.
    step: int = 0
    #: Sum of the objective over the steps of this epoch.
    loss_sum: float = 0.0
    interleaved: bool = False
    #: Epochs since the best one; the best one's score and number.
    without_better: int = 0
    best_score: float | None = None
    best_epoch: int | None = None
    #: One record for each finished epoch.
    history: list[dict[str, Any]] = []


@dataclass
class _Tensors:
    """Tensors under names with a prefix for whose they are."""

    all: dict[str, Tensor] = field(default_factory=dict)

    def put(self, prefix: str, tensors: dict[str, Tensor]) -> None:
        self.all |= {f"{prefix}/{name}": one for name, one in snapshot(tensors).items()}

    def get(self, prefix: str) -> dict[str, Tensor]:
        start = f"{prefix}/"
        found = self.all.items()
        return {name.removeprefix(start): one for name, one in found if name.startswith(start)}


def snapshot(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return copies on the CPU that later steps leave alone."""
    return {name: one.detach().to("cpu", copy=True).contiguous() for name, one in tensors.items()}


def save_state(
    counters: Counters,
    model: nn.Module,
    objective: nn.Module,
    optimiser: Optimizer,
    best: dict[str, Tensor] | None,
) -> bytes:
    """Return a checkpoint."""
    tensors = _Tensors()
    tensors.put("model", model.state_dict())
    tensors.put("objective", objective.state_dict())
    tensors.put("best", best or {})
    for index, values in optimiser.state_dict()["state"].items():
        # SGD without momentum keeps None.
        kept = {name: one for name, one in values.items() if isinstance(one, Tensor)}
        tensors.put(f"optimiser/{index}", kept)
    metadata = {"format": _FORMAT, "counters": msgspec.json.encode(counters).decode()}
    data: bytes = safetensors.torch.save(tensors.all, metadata=metadata)
    return data


def load_state(
    data: bytes, run: str, model: nn.Module, objective: nn.Module, optimiser: Optimizer
) -> tuple[Counters, dict[str, Tensor] | None]:
    """Put a checkpoint into a model, objective and optimiser; return counters and best weights.

    Raises
    ------
    CorruptError: no checkpoint, or a damaged one.
    InputError: a checkpoint of another recipe or other data.
    """
    try:
        tensors = _Tensors(safetensors.torch.load(data))
        length = int.from_bytes(data[:8], "little")
        header = msgspec.json.decode(data[8 : 8 + length])["__metadata__"]
        if header["format"] != _FORMAT:
            raise ValueError(f"format {header['format']!r:.40}")
        counters = decoder_of(Counters).decode(header["counters"])
    except (safetensors.SafetensorError, msgspec.MsgspecError, KeyError, ValueError) as error:
        raise CorruptError(f"the checkpoint is damaged: {error}") from None
    if counters.run != run:
        raise InputError(
            "output",
            found="a checkpoint of another recipe or other data",
            accepted="an empty folder, or the recipe and data that the run there began with",
        )
    model.load_state_dict(tensors.get("model"))
    objective.load_state_dict(tensors.get("objective"))
    _restore(optimiser, tensors)
    return counters, tensors.get("best") or None


def _restore(optimiser: Optimizer, tensors: _Tensors) -> None:
    whole = optimiser.state_dict()
    state: dict[int, dict[str, Tensor | None]] = {}
    for name, one in tensors.get("optimiser").items():
        index, _, key = name.partition("/")
        state.setdefault(int(index), {})[key] = one
    whole["state"] = state
    optimiser.load_state_dict(whole)
