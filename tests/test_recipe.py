"""Recipes are equal from TOML and JSON, and errors name the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recalib.errors import InputError
from recalib.losses import PRIMARY, SECONDARY
from recalib.recipe import Recipe, read_recipe

_LEAST: dict[str, Any] = {"data": {"kind": "images"}, "model": {"name": "resnet8"}}
_TOML = """
name = "focal"
epochs = 3
[data]
kind = "images"
[model]
name = "resnet8"
[loss]
primary = "focal"
options = {gamma = 3}
secondary = "sb_ece"
[loss.schedules]
beta = {values = [0, 1], at = [0, 0.5], shape = "linear"}
[optimiser]
milestones = [2]
"""


def test_toml_and_json_are_equivalent(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(_TOML)
    recipe = read_recipe(tmp_path / "a.toml")
    (tmp_path / "a.json").write_text(recipe.model_dump_json(exclude_unset=True))
    assert read_recipe(tmp_path / "a.json") == recipe
    assert recipe.loss.schedules["beta"].value(0.25) == 0.5


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"model": None}, "^model: found None"),
        ({"epochs": "3"}, "^epochs: found '3'; accepted: a valid integer"),
        ({"epochs": 0}, "^epochs: found 0; accepted: greater than or equal to 1"),
        ({"epoch": 3}, "^epoch: found unknown field"),
        ({"name": "../x"}, "^name: "),
        ({"model": {}}, "^model.name: found nothing"),
        ({"model": {"name": "x", "train": "head"}}, "^model: .*weights"),
        ({"loss": {"primary": "nll"}}, "^loss.primary: found 'nll'; .*'cross_entropy', "),
        ({"loss": {"primary": "mmce"}}, "^loss.primary: found 'mmce'"),
        ({"loss": {"secondary": "focal"}}, "^loss.secondary: found 'focal'"),
        ({"loss": {"beta": 1}}, "^loss: .*secondary"),
        ({"loss": {"beta": float("nan"), "secondary": "mmce"}}, "^loss.beta: .*finite"),
        ({"loss": {"schedules": {"beta": {"values": [1], "at": [0.5]}}}}, "increase from 0"),
        ({"loss": {"schedules": {"beta": {"values": [1, 2], "at": [0]}}}}, "as many numbers"),
        ({"optimiser": {"learning_rate": 0}}, "^optimiser.learning_rate: "),
        ({"optimiser": {"name": "adamw", "momentum": 0.5}}, "^optimiser: .*momentum.*sgd"),
        ({"optimiser": {"schedule": "cosine", "milestones": [2]}}, "^optimiser: .*milestones"),
        ({"optimiser": {"name": "adam", "nesterov": True}}, "^optimiser: .*nesterov"),
        ({"optimiser": {"name": "adam", "betas": [0.9]}}, "^optimiser.betas: "),
        ({"optimiser": {"name": "adam", "betas": [0.9, 0.9, 0.9]}}, "^optimiser.betas: "),
        ({"optimiser": {"betas": [0.9, 0.9]}}, "^optimiser: .*betas.*adam"),
        ({"interleave": {"when": "auto"}}, "^recipe: .*secondary"),
        ({"batch_size": 4, "accumulate": 8}, "^recipe: .*accumulate"),
        (
            {"loss": {"secondary": "mmce"}, "accumulate": 2},
            "^recipe: .*mmce is a loss of the whole batch",
        ),
        ({"compile": "max-autotune"}, "^recipe: .*`deterministic` should be false"),
        ({"mixing": {"method": "cut"}}, "^mixing.method: found 'cut'"),
        (
            {"mixing": {"method": "mixup"}, "loss": {"secondary": "mmce"}},
            "^recipe: .*secondary loss .*not mmce: entropy_penalty, mdca",
        ),
        (
            {"mixing": {"method": "mixup"}, "loss": {"primary": "aurc"}},
            "^recipe: .*primary loss .*not aurc: cross_entropy, ",
        ),
        ({"tune": {}}, "^tune: .*values to try"),
        ({"tune": {"beta": [1], "trials": 3}}, "^tune: .*search `optuna`, and only with it"),
        ({"tune": {"beta": [1], "search": "optuna"}}, "^tune: .*`trials` should come with"),
        ({"tune": {"beta": {"low": 1, "high": 2}}}, "^tune: .*a range should come with"),
        ({"tune": {"beta": [1], "prune": True}}, "^tune: .*`prune` should come with"),
    ],
)
def test_invalid_field_is_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Recipe.of({**_LEAST, **more})


@pytest.mark.parametrize("optimiser", ["sgd", "adamw", "adam", "adagrad"])
def test_defaults_are_recorded(optimiser: str) -> None:
    """As in `recipe.json` of a run."""
    recipe = Recipe.of({**_LEAST, "optimiser": {"name": optimiser}})
    assert Recipe.of(json.loads(recipe.model_dump_json())) == recipe


def test_schema_lists_the_losses_of_the_catalogue() -> None:
    fields = Recipe.model_json_schema()["$defs"]["LossPart"]["properties"]
    assert fields["primary"]["enum"] == list(PRIMARY)
    assert fields["secondary"]["anyOf"][0]["enum"] == list(SECONDARY)


def test_integral_floats_are_accepted_as_integers() -> None:
    assert Recipe.of({**_LEAST, "epochs": 4.0}).epochs == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "epochs = ", "^config: .*a.toml: .*accepted: TOML"),
        ("a.json", "[1]", "no table"),
        ("a.json", '{"epochs": ', "accepted: JSON"),
        ("a.yaml", "", "a name ending in .toml or .json"),
        ("a.toml", None, r"No such file"),
    ],
)
def test_invalid_recipe_files_are_rejected(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_recipe(tmp_path / name)
