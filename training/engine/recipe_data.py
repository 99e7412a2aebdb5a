"""The data and the initial weights of a recipe, which are refused before torch is imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recalib.core.decoding import convert
from recalib.errors import InputError
from recalib.recipe import Recipe
from training.data import DataSpec, Splits, load
from training.data.base import Files

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LoadedData:
    """The data of a recipe, and its initial weights."""

    splits: Splits
    weights: dict[str, Tensor] | None


def load_all(recipe: Recipe, folder: Path, *, confined: bool) -> LoadedData:
    """Return data and weights; relative paths start at `folder`.

    Parameters
    ----------
    confined: whether to refuse paths outside `folder`, as for paths that a request names.

    Raises
    ------
    InputError: unreadable data, an invalid weights file, or a path outside `folder`.
    """
    try:
        spec = convert(recipe.data, DataSpec)
    except msgspec.ValidationError as error:
        raise InputError("data", found=str(error), accepted="the fields of a data set") from None
    try:
        splits = load(spec, folder, confined=confined)
    except InputError as error:
        if error.field.partition(".")[0] != "options":
            raise
        field = f"data.{error.field}"
        raise InputError(field, found=error.found, accepted=error.accepted) from None
    if recipe.model.weights is None:
        return LoadedData(splits, None)
    from training.engine.weights import read_weights

    return LoadedData(splits, read_weights(_weights_path(folder, recipe.model.weights, confined)))


def _weights_path(folder: Path, name: str, confined: bool) -> Path:
    try:
        return Files(folder, confined).path(name, "weights")
    except InputError as error:
        raise InputError("model.weights", found=error.found, accepted=error.accepted) from None
