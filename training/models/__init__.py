"""Networks by name: a new one is one file and one line here, or an entry point of a package.

A package of yours adds names by the entry-point group ``recalib.models``: each entry is a function
``make(classes, **options)``, as `training.models.base` describes. Only names that are registered
can be asked for; a name is never an import path.
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

from recalib.decoding import converted
from recalib.errors import InputError
from training.models.base import Make
from training.models.densenet import DenseNet, DenseNetBottleneck
from training.models.linear import Linear
from training.models.resnet import ResNet, ResNetBottleneck
from training.models.segmenter import Segmenter
from training.models.size import check_size
from training.models.text_cnn import TextCnn
from training.models.tree_lstm import TreeLstm
from training.models.wide_resnet import WideResNet

__all__ = ["MODELS", "Make", "build", "check_model", "head", "known"]

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


def known() -> dict[str, Make]:
    """Return every model by name: ours, and those of installed packages.

    Raises
    ------
    InputError: a package's entry has the name of one of ours, or cannot be loaded.
    """
    return {**MODELS, **_of_packages()}


def build(
    name: str, classes: int, *, facts: Mapping[str, int] | None = None, **options: Any
) -> nn.Module:
    """Return the network `name` for so many classes, its weights drawn by torch's generator.

    Parameters
    ----------
    facts: what the data says of itself (`training.data.Splits.facts`), such as ``vocabulary``;
        taken for those options of the network that have such a name and are not given.

    Raises
    ------
    InputError: no such name; fewer than 2 classes; an option that the network does not have, that
        it needs, or of the wrong type or size.
    """
    return _prepared(name, classes, facts, options)()


def check_model(
    name: str, classes: int, facts: Mapping[str, int], options: Mapping[str, Any], most: int
) -> None:
    """Raise `InputError` where `build` would, or would make a network of more than `most` weights.

    No memory is taken for them. A package's network that cannot be made without its tensors' values
    is not counted: whoever installs it answers for it.
    """
    make = _prepared(name, classes, facts, options)
    try:
        check_size(make, most)
    except InputError:
        raise
    except Exception:
        if name in MODELS:
            raise


def _prepared(
    name: str, classes: int, facts: Mapping[str, int] | None, options: Mapping[str, Any]
) -> Callable[[], nn.Module]:
    """Return what makes the network, its options checked."""
    make = known().get(name)
    if make is None:
        raise InputError("model", found=repr(name), accepted=", ".join(known()))
    if classes < 2:
        raise InputError("classes", found=f"{classes}", accepted="2 or more")
    types = _options(make)
    for option in options:
        if option not in types:
            accepted = ", ".join(types) or f"none: {name} has no options"
            raise InputError(f"options.{option}", found="an unknown option", accepted=accepted)
    given = {one: value for one, value in (facts or {}).items() if one in types} | dict(options)
    checked = {one: _converted(one, value, types[one]) for one, value in given.items()}
    for option in _needed(make):
        if option not in checked:
            raise InputError(f"options.{option}", found="nothing", accepted=f"{name} needs it")
    return partial(make, classes, **checked)


def head(model: nn.Module) -> nn.Module:
    """Return the layer that makes logits.

    Raises
    ------
    InputError: the network has no attribute ``head`` that is a layer.
    """
    found = getattr(model, "head", None)
    if not isinstance(found, nn.Module):
        raise InputError(
            "model", found=f"{type(model).__name__} without `head`", accepted="a layer called head"
        )
    return found


@cache
def _of_packages() -> dict[str, Make]:
    found: dict[str, Make] = {}
    for entry in entry_points(group=_GROUP):
        if entry.name in MODELS or entry.name in found:
            raise InputError(
                _GROUP, found=f"{entry.name} again, in {entry.value}", accepted="a name of its own"
            )
        try:
            found[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise InputError(
                _GROUP, found=f"{entry.value}: {error}", accepted="a function that can be loaded"
            ) from error
    return found


def _options(make: Make) -> dict[str, Any]:
    """Return the options that a caller may set, with their types.

    What a name fixes, as ``resnet20`` does its depth, is no option.
    """
    fixed = make.keywords if isinstance(make, partial) else {}
    function = make.func if isinstance(make, partial) else make
    types = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function)
    return {one: types.get(one, Any) for one in _parameters(make) if one not in fixed}


def _needed(make: Make) -> list[str]:
    return [one for one, it in _parameters(make).items() if it.default is inspect.Parameter.empty]


def _parameters(make: Make) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(make).parameters)
    found.pop("classes", None)
    return found


def _converted(option: str, value: Any, type_: Any) -> Any:
    try:
        value = converted(value, type_)
    except msgspec.ValidationError as error:
        raise InputError(f"options.{option}", found=repr(value), accepted=str(error)) from None
    # Sizes: no network has a layer of no channels, and dropout checks its own range.
    if type_ is int and value < 1:
        raise InputError(f"options.{option}", found=f"{value}", accepted="1 or more")
    return value
