"""Count the weights of a network without allocating memory for them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from recalib.errors import InputError

#: Layers use memory for Python objects besides weights. The deepest published network, with 1,202
#: layers, has about 3,600 tensors.
_MAX_TENSORS = 5_000


def check_size(make: Callable[[], nn.Module], max_weights: int) -> None:
    """Raise `InputError` if the network of `make` has more than `max_weights` weights.

    The network is built on the meta device, whose tensors have no memory. Weights are counted
    during construction, so that a network of a billion layers is refused at tensor 5,001. The state
    of the generator does not change.

    Raises
    ------
    InputError: for `options`.
    Exception: any error of `make`, for example if it needs the values of its tensors.
    """
    weights = tensors = 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal weights, tensors
        if parameter is not None:
            weights, tensors = weights + parameter.numel(), tensors + 1
        if weights > max_weights:
            raise _size_error(f"more than {max_weights} weights", max_weights)
        if tensors > _MAX_TENSORS:
            raise _size_error(f"more than {_MAX_TENSORS} tensors of weights", max_weights)

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            make()
    except (RuntimeError, OverflowError, TypeError) as error:
        if is_about_size(error):
            raise _size_error("more weights than can be counted", max_weights) from error
        raise
    finally:
        hook.remove()


def is_about_size(error: BaseException) -> bool:
    """Return whether an error means that a network is too large; torch has no error type for that.

    Such errors are a failed allocation, and a size or a product of sizes beyond 64 bits.
    """
    message = str(error).lower()
    signs = ("overflow", "too large", "allocate memory", "out of memory")
    return isinstance(error, MemoryError) or any(sign in message for sign in signs)


def _size_error(size: str, max_weights: int) -> InputError:
    return InputError("options", found=size, accepted=f"a network of at most {max_weights} weights")
