"""How many weights a network has, told without the memory for one of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from recalib.errors import InputError

__all__ = ["check_size", "is_about_size"]

#: Layers hold Python objects besides weights; the deepest of the literature, 1,202 layers, has some
#: 3,600 tensors.
_MOST_TENSORS = 5_000


def check_size(make: Callable[[], nn.Module], most: int) -> None:
    """Raise `InputError` where the network that `make` would return has more than `most` weights.

    It is made of tensors that have shapes and no memory, and counted while it is made, so that one
    of a billion layers is refused at the five-thousandth tensor. The generator is left as it was.

    Raises
    ------
    InputError: for `options`.
    Exception: what `make` raises, such as where it needs its tensors' values.
    """
    weights = tensors = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal weights, tensors
        if parameter is not None:
            weights, tensors = weights + parameter.numel(), tensors + 1
        if weights > most:
            raise _refused(f"more than {most} weights", most)
        if tensors > _MOST_TENSORS:
            raise _refused(f"more than {_MOST_TENSORS} tensors of weights", most)

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            make()
    except (RuntimeError, OverflowError, TypeError) as error:
        if is_about_size(error):
            raise _refused("more weights than can be counted", most) from error
        raise
    finally:
        hook.remove()


def is_about_size(error: BaseException) -> bool:
    """Return whether a network could not be made for its size: torch has no type of error for it.

    Memory that there is not, or a size or a product of sizes beyond 64 bits.
    """
    said = str(error).lower()
    signs = ("overflow", "too large", "allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(one in said for one in signs)


def _refused(found: str, most: int) -> InputError:
    return InputError("options", found=found, accepted=f"a network of at most {most} weights")
