"""Recipes: every field is described, and the examples of docs/training.md are valid."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

from docs import reference_tables
from recalib.core.field_comments import field_comments
from recalib.recipe import Recipe
from training.engine.artifacts import FILES

_PAGE = (Path(__file__).parents[1] / "docs" / "training.md").read_text()


@pytest.mark.parametrize("part", reference_tables.PARTS.values())
def test_every_field_of_a_recipe_has_a_comment(part: type[BaseModel]) -> None:
    comments = field_comments(part)
    assert set(comments) == set(part.model_fields)
    assert all(comment.endswith(".") for comment in comments.values())


def test_fields_of_a_recipe_have_their_defaults() -> None:
    page = reference_tables.recipes()
    assert "| `epochs` | `30` | whole number | Number of epochs. |" in page
    assert "| `train` | `all` | `all`, `head` |" in page
    assert "| `data` | required | table |" in page


def test_every_file_is_listed() -> None:
    section = _PAGE.split("## Files of a run\n")[1].split("\n## ")[0]
    named = re.findall(r"`([\w.]+)`", "".join(re.findall(r"^\| (.*?) \|", section, re.MULTILINE)))
    assert set(named) == {*FILES, "checkpoint.safetensors"}


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", _PAGE, re.DOTALL))
def test_recipes_on_the_page_are_valid(text: str) -> None:
    Recipe.of(tomllib.loads(text))
