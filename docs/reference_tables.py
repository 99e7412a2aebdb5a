"""Tables of the reference: settings, commands, Prometheus metrics, errors and file formats.

The build of the site writes them from the code. `PAGES` of `conf.py` lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from recalib import errors, recipe
from recalib.cli import root_command
from recalib.core.field_comments import field_comments
from recalib.files import FORMATS
from recalib.settings import Settings
from service.grpc.errors import CODES
from service.health.registry_metrics import RegistrySnapshot, families, links_family
from service.http.problems import PROBLEMS
from service.metrics import REGISTRY

#: Names of metrics that Recalib exports.
_PREFIX = "recalib_"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown; cells of all rows are text of Markdown in one line."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def settings() -> str:
    """Return the table of all settings."""
    comments = field_comments(Settings)
    rows = [
        [f"`RECALIB_{name.upper()}`", _default(field), _accepted(field), comments[name]]
        for name, field in Settings.model_fields.items()
    ]
    return "## All settings\n\n" + table(["variable", "default", "accepted", "meaning"], rows)


def _default(field: FieldInfo) -> str:
    text = str(field.default).replace(str(Path.home()), "~")
    return f"`{text.lower() if field.annotation is bool else text}`" if text else "empty"


def _accepted(field: FieldInfo) -> str:
    limits = {
        name: getattr(limit, name)
        for limit in field.metadata
        for name in ("ge", "gt", "le")
        if hasattr(limit, name)
    }
    kinds = {bool: "true or false", int: "whole number", float: "number", Path: "a folder"}
    kind = kinds.get(field.annotation, "text")  # type: ignore[call-overload]
    if "gt" in limits:
        return f"{kind}, above {limits['gt']}"
    return f"{kind}, {limits['ge']} to {limits['le']}" if "le" in limits else kind


#: By the heading of its table.
PARTS: dict[str, type[BaseModel]] = {
    "The whole": recipe.Recipe,
    "`[model]`": recipe.ModelPart,
    "`[loss]`": recipe.LossPart,
    "`[optimiser]`": recipe.Optimiser,
    "`[mixing]`": recipe.Mixing,
    "`[interleave]`": recipe.Interleave,
    "`[stop]`": recipe.Stop,
    "`[dense]`": recipe.Dense,
    "`[calibrate]`": recipe.Calibrate,
    "`[tune]`": recipe.Tune,
}


def recipes() -> str:
    """Return the tables of the fields of a recipe, from the comments of its classes."""
    text = "## Fields of a recipe\n"
    for title, part in PARTS.items():
        comments = field_comments(part)
        rows = [
            [f"`{name}`", _recipe_default(field.default), _type(field.annotation), comments[name]]
            for name, field in part.model_fields.items()
        ]
        text += f"\n### {title}\n\n" + table(["field", "default", "type", "meaning"], rows)
    return text


def _recipe_default(default: Any) -> str:
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        return "a table"
    if default in (None, [], {}):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _type(annotation: Any) -> str:
    """Return a type in words."""
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    if annotation in names:
        return names[annotation]
    if get_origin(annotation) is Annotated:
        return _type(annotation.__origin__)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if get_origin(annotation) is list:
        return f"list of {_type(get_args(annotation)[0])}"
    if get_origin(annotation) in (UnionType, Union):
        return " or ".join(_type(kind) for kind in get_args(annotation) if kind is not NoneType)
    return "table"


def commands() -> str:
    """Return the page of the command line."""
    sections = [_command(path, command) for path, command in walk(root_command(), ["recalib"])]
    return "# Command line\n\n" + "\n".join(sections)


def walk(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    """Yield each command without subcommands, with the words that call it."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name in command.list_commands(click.Context(command)):
        yield from walk(command.commands[name], [*path, name])


def _command(path: list[str], command: Any) -> str:
    context = click.Context(command, info_name=" ".join(path))
    usage = " ".join([context.info_name or "", *command.collect_usage_pieces(context)])
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [[f"`{name}`", escape(text)] for name, text in filter(None, records)]
    text = escape(inspect.cleandoc(command.help or ""))
    parts = [f"## `{' '.join(path)}`\n", text, f"\n```text\n{usage}\n```\n"]
    return "\n".join(parts) + "\n" + table(["argument or option", "meaning"], rows)


def escape(text: str) -> str:
    """Return text of help as Markdown."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[").replace("$", "\\$")


def prometheus() -> str:
    """Return the page of the metrics of a server."""
    empty = RegistrySnapshot({}, [], [], None)
    found = [*REGISTRY.collect(), links_family(Settings()), *families(empty)]
    rows = [
        [f"`{_name(family)}`", family.type, _labels(family), escape(family.documentation)]
        for family in sorted(found, key=lambda family: family.name)
        if family.name.startswith(_PREFIX)
    ]
    text = "# Prometheus metrics\n\n`GET /metrics` of a server has these, besides those of the "
    text += "process. A histogram has `_bucket`, `_sum` and `_count`.\n\n"
    return text + table(["metric", "type", "labels", "meaning"], rows)


def _name(family: Any) -> str:
    return str(family.name) + {"counter": "_total", "info": "_info"}.get(family.type, "")


def _labels(family: Any) -> str:
    owner = next((c for c in REGISTRY._collector_to_names if _is_of(c, family)), family)
    return ", ".join(f"`{name}`" for name in owner._labelnames)


def _is_of(collector: Any, family: Any) -> bool:
    return getattr(collector, "_name", None) == family.name


def error_classes() -> str:
    """Return the page of errors: the cause of each, its status of HTTP and its code of gRPC."""
    text = (
        "# Errors\n\nEvery exception of Recalib derives from `RecalibError`, and an invalid input "
    )
    text += "is also a `ValueError`. A program of the command line ends with status 2, after one "
    text += "line on standard error. `InputError` has `field`, `found` and `accepted`.\n\n"
    rows = [
        [f"`{kind.__name__}`", inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0],
         str(PROBLEMS[kind][0]), f"`{CODES[kind].name}`"]
        for kind in map(vars(errors).get, errors.__all__)
        if kind in CODES
    ]  # fmt: skip
    return text + table(["exception", "cause", "HTTP", "gRPC"], rows)


def formats() -> str:
    """Return the page of file formats: suffixes and content types of data, and of calibrators."""
    rows = [
        [f"`{name}`", ", ".join(f"`{suffix}`" for suffix in reader.suffixes),
         ", ".join(f"`{kind}`" for kind in reader.media_types),
         inspect.cleandoc(reader.__doc__ or "").split("\n\n")[0]]
        for name, reader in FORMATS.items()
    ]  # fmt: skip
    text = "# File formats\n\n## Data\n\n[data.md](../data.md) says which columns a file has.\n\n"
    text += table(["format", "suffixes", "content types", "content"], rows)
    text += (
        "\n## Calibrators: `.calib`\n\nA file of safetensors: the parameters are its tensors. Its "
    )
    text += (
        "metadata has `card`, JSON, and `sha256`, over the card and the tensors. It has no code.\n"
    )
    text += "\n```{eval-rst}\n.. automodule:: recalib.core.card\n   :members:\n"
    return text + "   :undoc-members:\n```\n"
