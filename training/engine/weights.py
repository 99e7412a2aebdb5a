"""Weight files: the result of a run, and the start of fine-tuning."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from recalib.errors import InputError
from training.models import head

_FIELD = "model.weights"
_PICKLED = (".pth", ".pt", ".bin")
_ACCEPTED = "a safetensors file, or one of torch.save with tensors only (.pth, .pt, .bin)"
_PREFIXES = re.compile(r"^((module|_orig_mod)\.)+")
#: Maximum number of tensors that a message lists; the rest are counted.
_MAX_NAMES = 8


def weights_bytes(weights: dict[str, Tensor], architecture: str) -> bytes:
    """Return the bytes of a safetensors file with a network's state and architecture name."""
    return safetensors.torch.save(weights, metadata={"architecture": architecture})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file of weights; raise `InputError` if it is invalid.

    A name that ends in `.pth`, `.pt` or `.bin` is a file of `torch.save`, read without running its
    code (`weights_only`): a state, or a dictionary with one as `state_dict` or `model`. Prefixes of
    `DataParallel` and `torch.compile` are removed from the names.
    """
    try:
        tensors = (
            _load_state(path) if path.suffix in _PICKLED else safetensors.torch.load_file(path)
        )
    except OSError as error:
        found = f"{path} ({error.strerror or 'unreadable'})"
        raise InputError(_FIELD, found=found, accepted=_ACCEPTED) from None
    except pickle.UnpicklingError as error:
        # torch's message advises to run the code of the file.
        found = f"{path}: objects other than tensors, or a damaged file"
        raise InputError(_FIELD, found=found, accepted=_ACCEPTED) from error
    except (safetensors.SafetensorError, RuntimeError, ValueError) as error:
        sentence = (str(error).splitlines() or [""])[0].partition(". ")[0]
        raise InputError(_FIELD, found=f"{path}: {sentence[:200]}", accepted=_ACCEPTED) from error
    return {_PREFIXES.sub("", name): tensor for name, tensor in tensors.items()}


def _load_state(path: Path) -> dict[str, Tensor]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in content.items()
    ):
        raise ValueError("not the state of a network")
    return dict(content)


@dataclass(frozen=True)
class LoadedWeights:
    """Which tensors of a network come from a user's weights."""

    #: Number of tensors.
    loaded: int
    #: Tensors of the network that keep their initial values, with their shapes.
    not_loaded: tuple[str, ...]
    #: Tensors of the file that the network does not have, or has in another shape.
    unused: tuple[str, ...]

    def describe(self) -> str:
        """Return a sentence for a person."""
        count = self.loaded + len(self.not_loaded)
        text = f"{self.loaded} of the network's {count} tensors are loaded"
        for label, names in (("not loaded", self.not_loaded), ("unused", self.unused)):
            text += f"; {label}: {_join_names(names)}" if names else ""
        return text


def load_weights(
    network: nn.Module, weights: dict[str, Tensor], *, new_head: bool, partial: bool = False
) -> LoadedWeights:
    """Load a user's weights into a network.

    Parameters
    ----------
    new_head: whether the last layer keeps its random weights; its tensors are ignored.
    partial: whether only tensors of the same name and shape are loaded, at least one.

    Raises
    ------
    InputError: unless `partial`, names the tensors that are missing, unknown, or of another shape
        or type; or no tensor fits; or a tensor has a value that is not finite.
    """
    state = network.state_dict()
    ignored = _names_of_head(network) if new_head else set()
    tensors = {name: tensor for name, tensor in weights.items() if name not in ignored}
    expected = {name: tensor for name, tensor in state.items() if name not in ignored}
    wrong = _differences(expected, tensors)
    fitting = {
        name: tensor
        for name, tensor in tensors.items()
        if name in expected and _alike(expected[name], tensor)
    }
    if wrong and not (partial and fitting):
        raise InputError(_FIELD, found=_join_names(wrong), accepted=_describe(network))
    for name, tensor in fitting.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise InputError(_FIELD, found=f"{name} is not finite", accepted="finite numbers")
    network.load_state_dict(fitting, strict=False)
    return LoadedWeights(
        len(fitting),
        tuple(f"{name} {_shape(state[name])}" for name in state if name not in fitting),
        tuple(f"{name} {_shape(weights[name])}" for name in weights if name not in fitting),
    )


def freeze_all_but_head(network: nn.Module) -> None:
    """Freeze all layers but the last; frozen layers also keep their running statistics."""
    network.requires_grad_(False)
    network.eval()
    last = head(network)
    last.requires_grad_(True)
    last.train()


def _join_names(names: Sequence[str]) -> str:
    rest = f"; and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return "; ".join(names[:_MAX_NAMES]) + rest


def _differences(expected: dict[str, Tensor], tensors: dict[str, Tensor]) -> list[str]:
    """Return the differences between `tensors` and `expected`, one line each."""
    missing = [
        f"{name} {_shape(tensor)} missing"
        for name, tensor in expected.items()
        if name not in tensors
    ]
    unknown = [
        f"{name} {_shape(tensor)} unknown"
        for name, tensor in tensors.items()
        if name not in expected
    ]
    other = [
        f"{name} {_shape(tensors[name])} instead of {_shape(tensor)}"
        for name, tensor in expected.items()
        if name in tensors and not _alike(tensor, tensors[name])
    ]
    return other + missing + unknown


def _alike(first: Tensor, second: Tensor) -> bool:
    return first.shape == second.shape and first.is_floating_point() == second.is_floating_point()


def _names_of_head(network: nn.Module) -> set[str]:
    last = head(network)
    (prefix,) = [name for name, module in network.named_modules() if module is last][:1]
    return set(last.state_dict(prefix=f"{prefix}." if prefix else ""))


def _shape(tensor: Tensor) -> str:
    kind = "" if tensor.is_floating_point() else f" {str(tensor.dtype).removeprefix('torch.')}"
    return f"{tuple(tensor.shape)}{kind}"


def _describe(network: nn.Module) -> str:
    state = network.state_dict()
    numbers = sum(tensor.numel() for tensor in state.values())
    return f"the {len(state)} tensors of a {type(network).__name__}, {numbers} numbers"


def trained_parameters(network: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that the optimiser updates."""
    return [parameter for parameter in network.parameters() if parameter.requires_grad]
