"""Create members of a family (maps, objectives, ...) from their names and options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

import msgspec

from recalib.decoding import converted
from recalib.errors import InputError

__all__ = ["check_option", "configure", "options_of"]

T = TypeVar("T")


def configure(
    family: Mapping[str, type[T]], name: str, options: Mapping[str, Any], *, field: str
) -> T:
    """Return member `name` of `family` with `options`.

    Raises
    ------
    InputError: an unknown member, an unknown option, or an option of the wrong type; the error
        names the field (`map`, or `options.<name>`), the value and the accepted values.
    """
    member = family.get(name)
    if member is None:
        raise InputError(field, found=repr(name), accepted=", ".join(family))
    known = [option.name for option in fields(member)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            accepted = ", ".join(known) or f"none: {name} has no options"
            raise InputError(f"options.{option}", found="an unknown option", accepted=accepted)
    try:
        values = converted(dict(options), member)
    except msgspec.ValidationError as error:
        raise InputError("options", found=str(error), accepted=f"options of {name}") from None
    # Include defaults, so that a card names all options even if a later version changes a default.
    return member(**{option: getattr(values, option) for option in known})


def check_option(name: str, value: float, legal: bool, accepted: str) -> None:
    """Raise `InputError` unless an option's value is finite and `legal`."""
    if not (legal and math.isfinite(value)):
        raise InputError(f"options.{name}", found=f"{value:g}", accepted=accepted)


def options_of(member: object) -> dict[str, Any]:
    """Return the options from which `configure` creates `member` again."""
    # Not the member itself, because msgspec would include its properties.
    values = {field.name: getattr(member, field.name) for field in fields(member)}  # type: ignore[arg-type]
    plain: dict[str, Any] = msgspec.to_builtins(values)
    return plain
