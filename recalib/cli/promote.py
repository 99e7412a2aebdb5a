"""`recalib promote` and `recalib rollback`: change which version of a model serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli import options
from recalib.cli.monitoring import comparison_text
from recalib.reporting.terminal import say, show, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recalib.client import Alias
    from recalib.contract.alerts import VersionComparison

_AliasName = Annotated[str, typer.Option(help="The alias; `champion` serves by default.")]
_Reason = Annotated[str, typer.Option(help="The reason, for the history of the alias.")]


def promote(
    model: options.ModelName,
    version: Annotated[int, typer.Argument(help="The version.")],
    server: options.ServerUrl,
    alias: _AliasName = "champion",
    reason: _Reason = "",
    force: options.Force = False,
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Let a version of a model serve: every later request uses it."""
    from recalib.client import Client

    with Client(server, api_key=key) as client:
        _print(client.promote(model, version, alias=alias, reason=reason, force=force), json_output)


def rollback(
    model: options.ModelName,
    server: options.ServerUrl,
    alias: _AliasName = "champion",
    reason: _Reason = "rolled back",
    key: options.ApiKey = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Return to the version that served before; a second rollback undoes the first.

    If the champion has an alert, it says first how each earlier version does on the same recent
    labels. A candidate stays, and is compared with the version that serves then.
    """
    from recalib.client import Client

    with Client(server, api_key=key) as client:
        alert = client.get_monitoring(model).alert if alias == "champion" else None
        others = [] if alert is None else alert.versions
        if not json_output:
            for other in others:
                say(comparison_text(other))
        answer = client.rollback(model, alias=alias, reason=reason)
    _print(answer, json_output, others)
    if not others and alias == "champion":
        warn("earlier versions are not compared: there is no alert, or no logits are kept")
    if any(other.version == answer.version and other.high < 0 for other in others):
        warn(f"version {answer.version} is worse on recent labels; a second rollback undoes this")


def _print(
    alias: Alias, json_output: bool, others: Sequence[VersionComparison] | None = None
) -> None:
    versions = {} if others is None else {"versions": [dict(other) for other in others]}
    document = {**alias.model_dump(mode="json"), **versions}
    text = f"{alias.alias} of {alias.model} is version {alias.version}"
    show(document, text, warnings=alias.warnings, json_output=json_output)
