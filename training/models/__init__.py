"""Model registry: add a network with one file and one line here, or with an entry point.

A package registers models in the entry-point group ``recalib.models``. Each entry is a function
``make(classes, **options)``, as `training.models.base` describes. A name with a colon is a factory
of the user (`training.models.imported`), which only the command line accepts.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import entry_points
from typing import Any

import msgspec
from torch import nn

from recalib.core.decoding import convert
from recalib.errors import InputError
from training.models.base import Make
from training.models.densenet import DenseNet, DenseNetBottleneck
from training.models.imported import import_factory
from training.models.linear import Linear
from training.models.resnet import ResNet, ResNetBottleneck
from training.models.segmenter import Segmenter
from training.models.size import check_size
from training.models.text_cnn import TextCnn
from training.models.tree_lstm import TreeLstm
from training.models.wide_resnet import WideResNet

__all__ = ["MODELS", "Make", "build", "check_model", "head", "registered_models"]

MODELS: dict[str, Make] = {
    "linear": Linear,
    "resnet8": partial(ResNet, depth=8),
    "resnet20": partial(ResNet, depth=20),
    "resnet32": partial(ResNet, depth=32),
    "resnet56": partial(ResNet, depth=56),
    "resnet110": partial(ResNet, depth=110),
    "preresnet56": partial(ResNet, depth=56, block="pre"),
    "preresnet110": partial(ResNet, depth=110, block="pre"),
    "resnet50": partial(ResNetBottleneck, depth=50),
    "resnet101": partial(ResNetBottleneck, depth=101),
    "wide_resnet": WideResNet,
    "densenet40": partial(DenseNet, depth=40),
    "densenet121": DenseNetBottleneck,
    "text_cnn": TextCnn,
    "tree_lstm": TreeLstm,
    "segmenter": Segmenter,
}
_GROUP = "recalib.models"
#: Names of the last layer, in this order.
_HEADS = ("head", "fc", "classifier")


def registered_models() -> dict[str, Make]:
    """Return all models by name: built-in models and models of installed packages.

    Raises
    ------
    InputError: a package's entry has the name of another model, or cannot be loaded.
    """
    return {**MODELS, **_of_packages()}


def build(
    name: str, classes: int, *, facts: Mapping[str, int] | None = None, **options: Any
) -> nn.Module:
    """Return the network `name` for `classes` classes, with random weights of torch's generator.

    Parameters
    ----------
    facts: properties of the data (`training.data.Splits.facts`), such as ``vocabulary``; defaults
        for the network's options of the same names.

    Raises
    ------
    InputError: an unknown name; fewer than 2 classes; an option that is unknown, missing, or of the
        wrong type or size.
    """
    return _prepare(name, classes, facts, options)()


def check_model(
    name: str,
    classes: int,
    facts: Mapping[str, int],
    options: Mapping[str, Any],
    max_weights: int | None,
) -> None:
    """Raise `InputError` where `build` would, or for more than `max_weights` weights.

    With None, only name and options are checked.

    No memory is allocated for the weights. A package's network that needs the values of its tensors
    during construction is not checked: its installation is the operator's responsibility.
    """
    make = _prepare(name, classes, facts, options)
    if max_weights is None:
        return
    try:
        check_size(make, max_weights)
    except InputError:
        raise
    except Exception:
        if name in MODELS:
            raise


def _prepare(
    name: str, classes: int, facts: Mapping[str, int] | None, options: Mapping[str, Any]
) -> Callable[[], nn.Module]:
    """Check the options, and return a function that makes the network."""
    make = import_factory(name) if ":" in name else registered_models().get(name)
    if make is None:
        accepted = f"{', '.join(registered_models())}, or package.module:function"
        raise InputError("model", found=repr(name), accepted=accepted)
    if classes < 2:
        raise InputError("classes", found=f"{classes}", accepted="2 or more")
    types = _options(make)
    for option in options:
        if option not in types and not _takes_any(make):
            accepted = ", ".join(types) or f"none: {name} has no options"
            raise InputError(f"options.{option}", found="an unknown option", accepted=accepted)
    values = {option: value for option, value in (facts or {}).items() if option in types} | dict(
        options
    )
    checked = {
        option: _convert(option, value, types[option]) if option in types else value
        for option, value in values.items()
    }
    for option in _required_options(make):
        if option not in checked:
            raise InputError(f"options.{option}", found="nothing", accepted=f"{name} needs it")
    return partial(make, classes, **checked)


def head(model: nn.Module) -> nn.Module:
    """Return the last layer, which computes the logits.

    It is the attribute ``head``, ``fc`` or ``classifier``, as most networks of torchvision, timm
    and Hugging Face name it; of a sequence of layers, the last one with weights. Of other networks,
    it is the last layer with a matrix of weights, in the order in which these are registered.

    Raises
    ------
    InputError: the network has no such layer.
    """
    for name in _HEADS:
        layer = getattr(model, name, None)
        if isinstance(layer, nn.Sequential):
            layer = next((part for part in reversed(layer) if list(part.parameters())), None)
        if isinstance(layer, nn.Module) and list(layer.parameters()):
            return layer
    layers = [m for m in model.modules() if any(p.ndim > 1 for p in m.parameters(recurse=False))]
    if not layers:
        found = f"{type(model).__name__} without a matrix of weights"
        raise InputError("model", found=found, accepted="a network with a last layer")
    return layers[-1]


@cache
def _of_packages() -> dict[str, Make]:
    models: dict[str, Make] = {}
    for entry in entry_points(group=_GROUP):
        if entry.name in MODELS or entry.name in models:
            raise InputError(
                _GROUP, found=f"{entry.name} again, in {entry.value}", accepted="a unique name"
            )
        try:
            models[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                _GROUP, found=f"{entry.value}: {error}", accepted="a function that can be loaded"
            ) from error
    return models


def _options(make: Make) -> dict[str, Any]:
    """Return the options that a caller may set, with their types.

    Options that a name fixes, such as the depth of ``resnet20``, are excluded.
    """
    fixed = make.keywords if isinstance(make, partial) else {}
    function = make.func if isinstance(make, partial) else make
    function = function.__init__ if inspect.isclass(function) else function
    try:
        types = typing.get_type_hints(function)
    except NameError:  # types that a foreign package imports for type checkers alone
        types = {}
    return {option: types.get(option, Any) for option in _parameters(make) if option not in fixed}


def _required_options(make: Make) -> list[str]:
    return [
        option
        for option, parameter in _parameters(make).items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]


def _takes_any(make: Make) -> bool:
    parameters = inspect.signature(make).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


def _parameters(make: Make) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(make).parameters)
    for name in ("classes", "num_classes", "num_labels"):
        parameters.pop(name, None)
    return parameters


def _convert(option: str, value: Any, type_: Any) -> Any:
    try:
        value = convert(value, type_)
    except msgspec.ValidationError as error:
        raise InputError(f"options.{option}", found=repr(value), accepted=str(error)) from None
    except TypeError:  # a type of a foreign package that msgspec does not know
        return value
    # Integer options are sizes, which are positive. Float options have their own checks.
    if type_ is int and value < 1:
        raise InputError(f"options.{option}", found=f"{value}", accepted="1 or more")
    return value
