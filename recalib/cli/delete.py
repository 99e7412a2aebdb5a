"""`recalib delete`: delete a model, something in it, or a training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recalib.cli.arguments import JsonOutput, ServerUrl
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, say

if TYPE_CHECKING:
    from recalib.client import Client, Deletion


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
    evaluation: Annotated[
        str | None, typer.Option(help="Delete this evaluation of the model.", show_default=False)
    ] = None,
    batch: Annotated[
        str | None, typer.Option(help="Delete this batch of the model.", show_default=False)
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
    """Delete a model on a server, or a resource of the model.

    It is hidden at once, and its content is erased after the server's retention period.
    """
    import msgspec

    from recalib.client import Client

    options = {
        "dataset": dataset,
        "version": version,
        "alias": alias,
        "evaluation": evaluation,
        "batch": batch,
        "run": run,
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    if len(chosen) > 1:
        found = " and ".join(f"--{name}" for name in chosen)
        raise InputError("options", found=found, accepted="one of them")
    if (model is None) == (run is None):
        found = "none" if model is None else f"{model} and --run"
        raise InputError("model", found=found, accepted="the name of a model, or --run ID")
    with Client(server) as client:
        title, deletion = _delete(client, model or "", chosen, force)
    if json_output:
        print_json({"deleted": title} | msgspec.to_builtins(deletion))
    else:
        say(f"deleted {title}; its content is erased after {deletion.erased_after:%Y-%m-%d %H:%M}")


def _delete(
    client: Client, model: str, option: Mapping[str, Any], force: bool
) -> tuple[str, Deletion]:
    """Delete what an option names, or the model; return a description of it, and the answer."""
    kinds: dict[str, tuple[str, Callable[..., Deletion]]] = {
        "dataset": ("data set", client.delete_dataset),
        "version": ("version", client.delete_calibrator),
        "alias": ("alias", client.delete_alias),
        "evaluation": ("evaluation", client.delete_evaluation),
        "batch": ("batch", client.delete_batch),
    }
    for name, value in option.items():
        if name == "run":
            return f"training run {value}", client.delete_run(value, force=force)
        title, delete = kinds[name]
        return f"{title} {value} of {model}", delete(model, value, force=force)
    return f"model {model}", client.delete_model(model, force=force)
