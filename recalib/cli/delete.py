"""`recalib delete`: delete a model, a data set, a version, an alias or a training run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recalib.cli.arguments import JsonOutput, ServerUrl
from recalib.errors import InputError
from recalib.terminal import print_json, say

if TYPE_CHECKING:
    from recalib.client import Client, Deletion

__all__ = ["delete"]


def delete(
    server: ServerUrl,
    model: Annotated[
        str | None, typer.Argument(help="The model's name.", show_default=False)
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Delete this data set of the model.", show_default=False)
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Delete this version of the model.", show_default=False)
    ] = None,
    alias: Annotated[
        str | None, typer.Option(help="Delete this alias of the model.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(help="Delete the training run with this job id.", show_default=False),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Cancel the jobs that use it, and delete a champion."),
    ] = False,
    json_output: JsonOutput = False,
) -> None:
    """Delete a model on a server, or one thing in it.

    It is hidden at once, and its content is erased after the server's retention period.
    """
    import msgspec

    from recalib.client import Client

    options = {"--dataset": dataset, "--version": version, "--alias": alias, "--run": run}
    chosen = [name for name, value in options.items() if value is not None]
    if len(chosen) > 1:
        raise InputError("options", found=" and ".join(chosen), accepted="one of them")
    if (model is None) == (run is None):
        found = "none" if model is None else f"{model} and --run"
        raise InputError("model", found=found, accepted="the name of a model, or --run ID")
    with Client(server) as client:
        title, deletion = _delete(client, model or "", dataset, version, alias, run, force)
    if json_output:
        print_json({"deleted": title} | msgspec.to_builtins(deletion))
    else:
        say(f"deleted {title}; its content is erased after {deletion.erased_after:%Y-%m-%d %H:%M}")


def _delete(
    client: Client,
    model: str,
    dataset: str | None,
    version: int | None,
    alias: str | None,
    run: str | None,
    force: bool,
) -> tuple[str, Deletion]:
    """Delete what the options name; return a description of it, and the answer."""
    if run is not None:
        return f"training run {run}", client.delete_run(run, force=force)
    if dataset is not None:
        answer = client.delete_dataset(model, dataset, force=force)
        return f"data set {dataset} of {model}", answer
    if version is not None:
        answer = client.delete_calibrator(model, version, force=force)
        return f"version {version} of {model}", answer
    if alias is not None:
        return f"alias {alias} of {model}", client.delete_alias(model, alias, force=force)
    return f"model {model}", client.delete_model(model, force=force)
