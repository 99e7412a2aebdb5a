"""Arguments of `recalib api`, as `key=text` or `key:=JSON`, converted to the types of a method."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from recalib.core.field_types import Interval
from recalib.errors import InputError

#: A key, `=` or `:=`, and a value, which is that of a file after `@`.
_ARGUMENT = re.compile(r"(\w+)(:?)=(@?)(.*)", re.DOTALL)
#: How arguments give types that JSON does not have, and types that the client does not import.
_TYPES = {
    "ArrayLike": list,
    "FittedCalibrator": str,
    "RowLabels": list,
    "Rows": list,
    "Target": str,
}
_JSON_TYPES = (str, int, float, bool, list, NoneType, Any)


def parameters_of(method: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a method that arguments can give."""
    _, *parameters = inspect.signature(method).parameters.values()
    known: dict[str, inspect.Parameter] = {}
    for item in parameters:
        if item.kind is item.VAR_KEYWORD:  # a keyword for each field of a dataclass
            known |= inspect.signature(_kinds_of(method)[item.name].__metadata__[0]).parameters
        elif item.name != "progress":  # `recalib api` shows it itself
            known[item.name] = item
    return known


def type_text(method: Callable[..., Any], parameter: inspect.Parameter) -> str:
    """Return the type of a parameter as text: choices, and of a field of a dataclass its range."""
    kind = _kinds_of(method)[parameter.name]
    has_choices = any(get_origin(part) is Literal for part in (kind, *get_args(kind)))
    if parameter.name in inspect.signature(method).parameters and not has_choices:
        return str(parameter.annotation)
    return _field_text(kind)


def _field_text(kind: Any) -> str:
    origin, members = get_origin(kind), get_args(kind)
    if origin is Annotated:
        ranges = [str(item) for item in members if isinstance(item, Interval)]
        return ", ".join([_field_text(members[0]), *ranges])
    if origin in (Union, UnionType):
        return " | ".join(map(_field_text, members))
    if origin is tuple:
        return f"Sequence[{_field_text(members[0])}]"
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, members))}]"
    return "None" if kind is NoneType else str(kind.__name__)


def _kinds_of(method: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of parameters, and of the fields of a dataclass that are keywords."""
    kinds = get_type_hints(method, localns=_TYPES, include_extras=True)
    for kind in list(kinds.values()):
        if get_origin(kind) is Annotated:
            kinds |= get_type_hints(kind.__metadata__[0], include_extras=True)
    return kinds


def parse_arguments(method: Callable[..., Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a method by name.

    Raises
    ------
    InputError: no `key=value`, an unknown or a missing key, or a value of another type.
    """
    given: dict[str, list[Any]] = {}
    for argument in arguments:
        key, value = _split(argument)
        given.setdefault(key, []).append(value)
    parameters = parameters_of(method)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise InputError(name, found="nothing", accepted=f"{name}={parameter.annotation}")
    kinds = _kinds_of(method)
    values = {}
    for key, items in given.items():
        if key not in parameters:
            accepted = ", ".join(parameters) or "no arguments"
            raise InputError(key, found="no parameter of the operation", accepted=accepted)
        accepted = type_text(method, parameters[key])
        values[key] = _convert(key, items, accepted, kinds[key])
    return values


def _split(argument: str) -> tuple[str, Any]:
    """Return the key of an argument, and its text or its JSON value."""
    match = _ARGUMENT.fullmatch(argument)
    if match is None:
        raise InputError("argument", found=repr(argument), accepted="key=value or key:=JSON")
    key, is_json, is_file, text = match.groups()
    if is_file:
        try:
            text = Path(text).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(key, found=f"{text} ({error})", accepted="a file of text") from None
    if not is_json:
        return key, text
    try:
        return key, json.loads(text)
    except ValueError as error:
        raise InputError(key, found=f"{text[:80]!r} ({error})", accepted="JSON") from None


def _convert(key: str, values: list[Any], accepted: str, kind: Any) -> Any:
    """Return the only value of a key as a type, or else the list of its values."""
    candidates = [*values, values] if len(values) == 1 else [values]
    for value in candidates:
        try:
            return msgspec.convert(value, _json_kind(kind), strict=False)
        except msgspec.ValidationError:
            continue
    found = " and ".join(repr(value)[:80] for value in values)
    raise InputError(key, found=found, accepted=accepted)


def _json_kind(kind: Any) -> Any:
    """Return the part of a type that JSON can represent; None without one."""
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kinds = [_json_kind(member) for member in members]
        return reduce(or_, [item for item in kinds if item is not None])
    if origin is Annotated:
        return _json_kind(members[0])
    if origin in (Sequence, tuple):
        return list[_json_kind(members[0])]  # type: ignore[misc]
    if origin is Mapping:
        return dict[members]  # type: ignore[misc,valid-type]
    return kind if origin is Literal or kind in _JSON_TYPES else None
