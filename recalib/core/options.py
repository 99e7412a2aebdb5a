"""Create members of a family (maps, objectives, ...) from their names and options."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from operator import attrgetter
from typing import Any, TypeVar, get_args

import msgspec

from recalib.core.decoding import convert
from recalib.errors import InputError

T = TypeVar("T")

#: What other libraries call our members.
_SYNONYMS = {
    other: name
    for name, others in {
        "ece": "expected_calibration_error",
        "ensemble_temperature": "ets",
        "isotonic": "isotonic_regression",
        "nll": "cross_entropy log_loss logloss neg_log_loss",
        "roc_auc": "auc auroc",
        "smooth_ece": "smece",
        "structured_matrix": "sms",
        "structured_vector": "svs",
        "temperature": "temperature_scaling ts",
        "venn_abers": "cvap ivap",
        "vector": "bcts logistic platt sigmoid vector_scaling",
    }.items()
    for other in others.split()
}
#: What other libraries call the arguments of `recalib.fit`.
_ARGUMENTS = {
    "calibrator": "map",
    "class_names": "class_labels",
    "criterion": "objective",
    "from_logits": "input",
    "loss": "objective",
    "method": "map",
    "sample_weights": "sample_weight",
}
#: Synonyms of `vector` that need a reason.
_PLATT = ("logistic", "platt", "sigmoid")


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
        raise unknown_name(field, name, family)
    # Not `__match_args__`, which lacks keyword-only arguments, such as `weight` of losses.
    known = list(map(attrgetter("name"), fields(member)))  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            accepted = ", ".join(known) or f"none: {name} has no options"
            hint = _nearest(option, known)
            if field == "map" and option in _ARGUMENTS:
                hint = f"did you mean the argument {_ARGUMENTS[option]}? Options of {name}: "
            accepted = hint + accepted
            raise InputError(f"options.{option}", found="an unknown option", accepted=accepted)
    try:
        return convert(dict(options), member)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InputError):  # of the member's own checks
            raise error.__cause__ from None
        raise InputError("options", found=str(error), accepted=f"options of {name}") from None


def check_names(field: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `InputError` for a name that is not known."""
    members = list(known)
    for name in names:
        if name not in members:
            raise unknown_name(field, name, members)


def unknown_name(field: str, name: object, names: Iterable[str]) -> InputError:
    """Return the error for a name that is not among `names`; it suggests the nearest.

    >>> str(unknown_name("map", "temprature", ["temperature", "vector"]))
    "map: found 'temprature'; accepted: did you mean temperature? Names: temperature, vector"
    """
    known = list(names)
    hint = _nearest(name, known) if isinstance(name, str) else ""
    return InputError(field, found=f"{name!r:.60}", accepted=hint + ", ".join(known))


def _nearest(name: str, names: Sequence[str]) -> str:
    plain = name.lower().replace("-", "_").replace(" ", "_")
    synonym = _SYNONYMS.get(plain)
    if synonym in names:
        reason = ", which is Platt scaling for scores (N,) of two classes" * (plain in _PLATT)
        return f"did you mean {synonym}{reason}? Names: "
    close = difflib.get_close_matches(plain, names, n=1)
    return f"did you mean {close[0]}? Names: " if close else ""


def check_choice(field: str, value: object, literal: Any) -> None:
    """Raise `InputError` unless a value is among those of a `Literal`."""
    if value not in (choices := get_args(literal)):
        raise InputError(field, found=f"{value!r:.80}", accepted=" or ".join(choices))


def check_option(name: str, value: float, legal: bool, accepted: str) -> None:
    """Raise `InputError` unless an option's value is finite and `legal`."""
    if not (legal and math.isfinite(value)):
        raise InputError(f"options.{name}", found=f"{value:g}", accepted=accepted)


def options_of(member: object) -> dict[str, Any]:
    """Return the options from which `configure` creates `member` again, as they are in JSON."""
    # Not the member itself, because msgspec would include its properties.
    return msgspec.json.decode(msgspec.json.encode(asdict(member)))  # type: ignore[call-overload]
