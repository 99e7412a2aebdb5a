"""`recalib api`: the operations of the client by name, with arguments as `key=value`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Annotated, Any, cast

import typer
import typer.main
from typer.core import TyperGroup

from recalib.cli import options
from recalib.cli.sections import SectionedGroup
from recalib.reporting.terminal import progress

#: Keeps the lines of a paragraph in a help text.
_VERBATIM = "\b\n"
#: The second line of a section of a docstring.
_UNDERLINE = re.compile(r"^-+$", re.MULTILINE)


@cache
def operations() -> dict[str, Callable[..., Any]]:
    """Return the operations of the client by name, in its order."""
    # The client takes half a second to import, and other commands do not need it.
    from recalib.client import Client
    from recalib.client.clients import Operations

    return {name: getattr(Client, name) for name in vars(Operations) if not name.startswith("_")}


class OperationGroup(SectionedGroup):
    """A command for each operation of the client, made when one of them is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        self.commands = _commands()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self.commands = _commands()
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=OperationGroup,
    help="Call any operation of the client on a server.",
    epilog="OPERATION --help lists its arguments: key=text, key:=JSON, or key=@FILE and "
    "key:=@FILE with the content of a file. A list is JSON, or its key is repeated.",
)


def _complete(context: typer.Context, incomplete: str) -> list[str]:
    from recalib.cli.api_arguments import parameters_of

    return [f"{key}=" for key in parameters_of(operations()[context.info_name or ""])]


def _call(
    context: typer.Context,
    server: options.ServerUrl,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...",
            help="Arguments of the operation: key=text, key:=JSON, key=@FILE or key:=@FILE.",
            autocompletion=_complete,
        ),
    ] = None,
    key: options.ApiKey = None,
    limit: Annotated[
        int | None, typer.Option(help="Items of a list to print; by default all.", min=0)
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the job that the operation starts.")
    ] = False,
    json_output: options.JsonOutput = False,
) -> None:
    from recalib.cli.api_arguments import parse_arguments
    from recalib.cli.api_results import print_items, print_result
    from recalib.client import Client, Job

    name = context.info_name or ""
    values = parse_arguments(operations()[name], arguments or [])
    with Client(server, api_key=key) as client:
        method = getattr(client, name)
        with progress(name, quiet=json_output) as update:

            def report(_: float, text: str) -> None:
                update(text)

            if "progress" in inspect.signature(method).parameters:
                values["progress"] = report
            result = method(**values)
            if wait and isinstance(result, Job):
                result = client.wait(result, progress=report)
        if isinstance(result, Iterator | list):
            print_items(islice(result, limit), json_output)
        else:
            print_result(result, json_output)


@cache
def _commands() -> dict[str, Any]:
    commands = typer.Typer(rich_markup_mode=None)
    for name, operation in operations().items():
        section = operation.__module__.rpartition(".")[2].capitalize()
        commands.command(name, help=_help(operation), rich_help_panel=section)(_call)
    group = cast(TyperGroup, typer.main.get_command(commands))
    return dict(group.commands)


def _help(operation: Callable[..., Any]) -> str:
    """Return the description of an operation and its parameters, without examples and errors."""
    from recalib.cli.api_arguments import parameters_of

    text = re.sub(r"^progress: .*\n", "", inspect.getdoc(operation) or "", flags=re.MULTILINE)
    summary, *paragraphs = text.split("\n\n")
    kept = [summary, *(text for text in paragraphs if not text.startswith((">>>", "Raises\n")))]
    types = [_declaration(operation, item) for item in parameters_of(operation).values()]
    kept.append("Types\n-----\n" + "\n".join(types))
    return "\n\n".join(_VERBATIM + text if _UNDERLINE.search(text) else text for text in kept)


def _declaration(operation: Callable[..., Any], parameter: inspect.Parameter) -> str:
    from recalib.cli.api_arguments import type_text

    text = f"{parameter.name}: {type_text(operation, parameter)}"
    return text if parameter.default is parameter.empty else f"{text} = {parameter.default!r}"
