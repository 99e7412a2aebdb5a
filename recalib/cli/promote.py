"""`recalib promote` and `recalib rollback`: change which version of a model serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli.arguments import ApiKey, JsonOutput, ModelName, ServerUrl
from recalib.reporting.terminal import print_json, say, warn

if TYPE_CHECKING:
    from recalib.client import Alias

_AliasName = Annotated[str, typer.Option(help="The alias; `champion` serves by default.")]
_Reason = Annotated[str, typer.Option(help="The reason, for the history of the alias.")]


def promote(
    model: ModelName,
    version: Annotated[int, typer.Argument(help="The version.", show_default=False)],
    server: ServerUrl,
    alias: _AliasName = "champion",
    reason: _Reason = "",
    key: ApiKey = None,
    json_output: JsonOutput = False,
) -> None:
    """Let a version of a model serve: every later request uses it."""
    from recalib.client import Client

    with Client(server, api_key=key) as client:
        _print(client.promote(model, version, alias=alias, reason=reason), json_output)


def rollback(
    model: ModelName,
    server: ServerUrl,
    alias: _AliasName = "champion",
    reason: _Reason = "rolled back",
    key: ApiKey = None,
    json_output: JsonOutput = False,
) -> None:
    """Return to the version that served before; a second rollback undoes the first."""
    from recalib.client import Client

    with Client(server, api_key=key) as client:
        _print(client.rollback(model, alias=alias, reason=reason), json_output)


def _print(alias: Alias, json_output: bool) -> None:
    if json_output:
        print_json(alias.model_dump(mode="json"))
        return
    say(f"{alias.alias} of {alias.model} is version {alias.version}")
    for warning in alias.warnings:
        warn(warning)
