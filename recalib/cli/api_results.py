"""Results of `recalib api`: lines for people, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import typer

from recalib.reporting.terminal import print_json, say

#: Characters of a value in a line, and of the indent; `--json` has what is longer or deeper.
_MAX_VALUE, _MAX_INDENT = 120, 6


def print_items(items: Iterable[Any], json_output: bool) -> None:
    """Print a line for each item, when it arrives."""
    for item in items:
        value = _builtins(item)
        typer.echo(json.dumps(value)) if json_output else say(_inline(value))


def print_result(result: Any, json_output: bool) -> None:
    """Print the fields of a result, one or more lines for each."""
    value = _builtins(result)
    if json_output:
        print_json(value)
    else:
        say("\n".join(_block(value, "") if isinstance(value, dict | list) else [_inline(value)]))


def _builtins(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value, enc_hook=_to_plain))


def _to_plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value.model_dump(mode="json")


def _inline(value: Any) -> str:
    """Return a value in one line; of an object, its fields as `name=value`."""
    if isinstance(value, dict):
        fields = {name: item for name, item in value.items() if not _is_empty(item)}
        return "  ".join(f"{name}={_word(item)}" for name, item in fields.items())
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, str) and len(value.split()) == 1:
        return value
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, list) and not _is_nested(value):
        return ",".join(_word(item) for item in value)
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]}..."


def _block(value: dict[str, Any] | list[Any], indent: str) -> Iterator[str]:
    """Yield the lines of an object or a list whose values are objects or lists too."""
    entries = (
        [(f"{name}:", item) for name, item in value.items()]
        if isinstance(value, dict)
        else [("-", item) for item in value]
    )
    for title, item in entries:
        if _is_nested(item) and len(indent) < _MAX_INDENT:
            yield indent + title
            yield from _block(item, f"{indent}  ")
        elif not _is_empty(item):
            yield f"{indent}{title} {'...' if _is_nested(item) else _inline(item)}"


def _is_empty(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value is None or value in ("", [])


def _is_nested(value: Any) -> bool:
    """Return whether a value contains objects or lists."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(isinstance(item, dict | list) for item in items)
