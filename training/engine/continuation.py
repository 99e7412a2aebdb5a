"""Check whether a run may go on from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recalib.errors import InputError
from recalib.recipe import Recipe
from training.engine.checkpoint_format import RunIdentity
from training.engine.objective import TrainingObjective


def check_continuation(
    previous: RunIdentity, run: RunIdentity, recipe: Recipe, objective: TrainingObjective
) -> None:
    """Raise `InputError` unless a run continues the run of a checkpoint; name the field.

    The recipe may have more `epochs`, if nothing in it depends on their number: the result is then
    that of a run which had as many from the start.
    """
    accepted = "the recipe and data of the run, where only `epochs` may increase; or another folder"
    for field, before, now in _differences("", previous.recipe, run.recipe):
        if field != "epochs" or now < before:
            found = f"{_text(now)}, and a checkpoint of a run with {_text(before)}"
            raise InputError(field, found=found, accepted=accepted)
        for total in _fields_of_total(recipe, objective):
            raise InputError(
                "epochs",
                found=f"{now} after {before}, with {total}, which depends on their number",
                accepted=f"{before}; or another run, with these weights as `model.weights`",
            )
    for field, before, now in (
        ("data", previous.data, run.data),
        ("model.weights", previous.weights, run.weights),
    ):
        if before != now:
            raise InputError(
                field, found="other contents than in the checkpoint", accepted=accepted
            )


def _fields_of_total(recipe: Recipe, objective: TrainingObjective) -> list[str]:
    """Return the fields of a recipe whose meaning depends on the number of epochs."""
    fields = {
        "optimiser.schedule = cosine": recipe.optimiser.schedule == "cosine",
        "loss.schedules": bool(recipe.loss.schedules),
        f"loss.primary = {recipe.loss.primary}": objective.primary.depends_on_epochs,
        f"loss.secondary = {recipe.loss.secondary}": objective.secondary is not None
        and objective.secondary.depends_on_epochs,
    }
    return [field for field, depends in fields.items() if depends]


def _differences(prefix: str, before: Any, now: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields that differ, with both values."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        if before != now:
            yield prefix, before, now
        return
    for name in {**before, **now}:
        yield from _differences(
            f"{prefix}.{name}" if prefix else name, before.get(name), now.get(name)
        )


def _text(value: Any) -> str:
    return "nothing" if value is None else f"{value!r:.80}"
