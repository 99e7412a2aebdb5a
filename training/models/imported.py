"""Networks of the user: a factory in an importable module or in a file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

from torch import nn

from recalib.errors import InputError
from training.imported import import_function

#: Names by which factories of other packages take the number of classes.
_CLASSES = ("classes", "num_classes", "num_labels")


def import_factory(name: str) -> Callable[..., nn.Module]:
    """Return the factory `package.module:function` or `path/to/file.py:function`.

    It is called as ``factory(classes, **options)``. The number of classes becomes the parameter
    `classes`, `num_classes` or `num_labels`, whichever the factory has; a factory with
    ``**kwargs`` alone gets `num_classes`, and `from_pretrained` of Hugging Face `num_labels`.
    Importing runs the user's code.

    Raises
    ------
    InputError: the module or the function is not there, or does not take a number of classes.
    """
    factory: Callable[..., nn.Module] = import_function(name, "model")
    parameters = inspect.signature(factory).parameters
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    parameter = next((known for known in _CLASSES if known in parameters), None)
    if parameter is None and takes_any:
        parameter = "num_labels" if name.endswith(".from_pretrained") else "num_classes"
    if parameter is None:
        found = f"{name}({', '.join(parameters)})"
        raise InputError("model", found=found, accepted=f"a parameter {' or '.join(_CLASSES)}")
    if parameter == "classes":
        return factory

    @wraps(factory)
    def make(classes: int, **options: Any) -> nn.Module:
        return factory(**{parameter: classes}, **options)

    return make
