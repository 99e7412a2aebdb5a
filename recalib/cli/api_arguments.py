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
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

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
    # `recalib api` shows progress itself.
    return {item.name: item for item in parameters if item.name != "progress"}


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
    others = [item for item in parameters.values() if item.kind is item.VAR_KEYWORD]
    for name, parameter in parameters.items():
        is_required = parameter.default is parameter.empty and parameter not in others
        if is_required and name not in given:
            raise InputError(name, found="nothing", accepted=f"{name}={parameter.annotation}")
    kinds = get_type_hints(method, localns=_TYPES)
    values = {}
    for key, items in given.items():
        receiver = parameters.get(key) or next(iter(others), None)
        if receiver is None:
            accepted = ", ".join(parameters) or "no arguments"
            raise InputError(key, found="no parameter of the operation", accepted=accepted)
        values[key] = _convert(key, items, receiver, kinds[receiver.name])
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


def _convert(key: str, values: list[Any], parameter: inspect.Parameter, kind: Any) -> Any:
    """Return the only value of a key as a type, or else the list of its values."""
    candidates = [*values, values] if len(values) == 1 else [values]
    for value in candidates:
        try:
            return msgspec.convert(value, _json_kind(kind), strict=False)
        except msgspec.ValidationError:
            continue
    found = " and ".join(repr(value)[:80] for value in values)
    raise InputError(key, found=found, accepted=f"{parameter.annotation}")


def _json_kind(kind: Any) -> Any:
    """Return the part of a type that JSON can represent; None without one."""
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kinds = [_json_kind(member) for member in members]
        return reduce(or_, [item for item in kinds if item is not None])
    if origin is Sequence:
        return list[_json_kind(members[0])]  # type: ignore[misc]
    if origin is Mapping:
        return dict[members]  # type: ignore[misc,valid-type]
    return kind if origin is Literal or kind in _JSON_TYPES else None
