"""docs/training.md lists every field of a recipe, and its examples are valid."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from recalib import recipe
from recalib.recipe import Recipe
from training.data import AUGMENTATIONS
from training.data.load import DataSpec
from training.engine.artifacts import FILES

_PAGE = (Path(__file__).parents[1] / "docs" / "training.md").read_text()
_PARTS: dict[str, type[BaseModel]] = {
    "## The recipe": recipe.Recipe,
    "### `[model]`": recipe.ModelPart,
    "### `[loss]`": recipe.LossPart,
    "### `[optimiser]`": recipe.Optimiser,
    "### `[mixing]`": recipe.Mixing,
    "### `[interleave]`": recipe.Interleave,
    "### `[stop]`": recipe.Stop,
    "### `[dense]`": recipe.Dense,
    "### `[calibrate]`": recipe.Calibrate,
    "### `[tune]`": recipe.Tune,
}


def format_default(default: Any) -> str:
    """Return a default as the page writes it."""
    if default is PydanticUndefined or isinstance(default, BaseModel):
        return ""
    if default in (None, [], {}):
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


@pytest.mark.parametrize("heading", _PARTS)
def test_every_field_is_listed_with_its_default(heading: str) -> None:
    section = _PAGE.split(f"{heading}\n")[1].split("\n##")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| [^|]*\|$", section, re.MULTILINE)
    fields = _PARTS[heading].model_fields
    assert dict(rows) == {name: format_default(recipe.default) for name, recipe in fields.items()}
    assert len(rows) == len(fields)


def test_every_file_is_listed() -> None:
    section = _PAGE.split("## Files of a run\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE)))
    assert set(named) == {*FILES, "checkpoint.safetensors"}


def test_data_options_are_listed() -> None:
    row = re.search(r"^\| `data` .*$", _PAGE, re.MULTILINE)
    assert row is not None
    named = re.findall(r"`(\w+)`", row[0])[1:]
    assert named == list(DataSpec.__struct_fields__)
    line = re.search(r"^\| `augmentation` .*$", _PAGE, re.MULTILINE)
    assert line is not None
    assert re.findall(r"`(\w+)`", line[0])[1:] == list(AUGMENTATIONS)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", _PAGE, re.DOTALL))
def test_recipes_on_the_page_are_valid(text: str) -> None:
    Recipe.of(tomllib.loads(text))
