"""Weights as files: what a run delivers, and what fine-tuning starts from."""

from __future__ import annotations

from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor, nn

from recalib.errors import InputError
from training.models import head

__all__ = [
    "freeze_all_but_head",
    "load_weights",
    "read_weights",
    "trained_parameters",
    "weights_bytes",
]

_FIELD = "model.weights"
#: Names of tensors that an error lists; the rest are counted.
_LISTED = 8


def weights_bytes(weights: dict[str, Tensor], architecture: str) -> bytes:
    """Return a safetensors file of a network's state, with the name of its architecture."""
    data: bytes = safetensors.torch.save(weights, metadata={"architecture": architecture})
    return data


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file; `InputError` where there are none."""
    try:
        return dict(safetensors.torch.load_file(path))
    except OSError as error:
        found = f"{path} ({error.strerror or 'unreadable'})"
        raise InputError(_FIELD, found=found, accepted="a safetensors file") from None
    except (safetensors.SafetensorError, ValueError) as error:
        raise InputError(_FIELD, found=f"{path}: {error}", accepted="a safetensors file") from None


def load_weights(network: nn.Module, weights: dict[str, Tensor], *, new_head: bool) -> None:
    """Put a user's weights into a network.

    Parameters
    ----------
    new_head: whether the last layer keeps what it was drawn as; its tensors are not looked at.

    Raises
    ------
    InputError: tensors that are missing, too many or of another shape or kind, by name; or a
        value that is not finite.
    """
    wanted = network.state_dict()
    kept = _names_of_head(network) if new_head else set()
    given = {name: one for name, one in weights.items() if name not in kept}
    wanted = {name: one for name, one in wanted.items() if name not in kept}
    wrong = _differences(wanted, given)
    if wrong:
        shown = "; ".join(wrong[:_LISTED])
        more = f"; and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        raise InputError(_FIELD, found=shown + more, accepted=_what(network))
    for name, one in given.items():
        if one.is_floating_point() and not bool(one.isfinite().all()):
            raise InputError(_FIELD, found=f"{name} is not finite", accepted="finite numbers")
    network.load_state_dict(given, strict=not kept)


def freeze_all_but_head(network: nn.Module) -> None:
    """Leave only the last layer to be trained; the others keep their statistics as well."""
    network.requires_grad_(False)
    network.eval()
    last = head(network)
    last.requires_grad_(True)
    last.train()


def _differences(wanted: dict[str, Tensor], given: dict[str, Tensor]) -> list[str]:
    """Return what keeps `given` from being `wanted`, a line each."""
    missing = [f"{name} {_shape(one)} missing" for name, one in wanted.items() if name not in given]
    unknown = [f"{name} {_shape(one)} unknown" for name, one in given.items() if name not in wanted]
    other = [
        f"{name} {_shape(given[name])} instead of {_shape(one)}"
        for name, one in wanted.items()
        if name in given and not _alike(one, given[name])
    ]
    return other + missing + unknown


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.is_floating_point() == other.is_floating_point()


def _names_of_head(network: nn.Module) -> set[str]:
    last = head(network)
    (prefix,) = [name for name, one in network.named_modules() if one is last][:1]
    return {f"{prefix}.{name}" for name in last.state_dict()}


def _shape(one: Tensor) -> str:
    kind = "" if one.is_floating_point() else f" {str(one.dtype).removeprefix('torch.')}"
    return f"{tuple(one.shape)}{kind}"


def _what(network: nn.Module) -> str:
    state = network.state_dict()
    numbers = sum(one.numel() for one in state.values())
    return f"the {len(state)} tensors of a {type(network).__name__}, {numbers} numbers"


def trained_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that an optimiser is to move."""
    return [one for one in network.parameters() if one.requires_grad]
