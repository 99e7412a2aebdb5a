"""`recalib describe`: show or change what is written about a model, a data set or a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from recalib.cli.arguments import JsonOutput, ModelName, ServerUrl
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, say

if TYPE_CHECKING:
    from recalib.client import Calibrator, Client, Dataset, Model


def describe(
    model: ModelName,
    server: ServerUrl,
    dataset: Annotated[
        str | None, typer.Option(help="Describe this data set of the model.", show_default=False)
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Describe this version of the model.", show_default=False)
    ] = None,
    description: Annotated[str | None, typer.Option(help="A new description.")] = None,
    tags: Annotated[
        str | None, typer.Option(help="New tags, separated by commas; empty for none.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="A new name of the model, which has no champion.", show_default=False),
    ] = None,
    predictions: Annotated[
        Literal["may_change", "keep_order", "keep"] | None,
        typer.Option(
            help="Which predictions later fits of the model may change: any, not the order by "
            "P(y = 1) of two classes, or not the predicted class.",
            show_default=False,
        ),
    ] = None,
    json_output: JsonOutput = False,
) -> None:
    """Show the description and the tags of a model, data set or version, or change them.

    Of a model also which predictions its fits may change.
    """
    import msgspec

    from recalib.client import Client

    if dataset is not None and version is not None:
        raise InputError("version", found=f"{version} and a data set", accepted="one of the two")
    if dataset is not None or version is not None:
        for field, value in (("name", name), ("predictions", predictions)):
            if value is not None:
                raise InputError(field, found=value, accepted="an option for a model only")
    changes: dict[str, Any] = {}
    if description is not None:
        changes["description"] = description
    if tags is not None:
        changes["tags"] = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if name is not None:
        changes["rename"] = name
    if predictions is not None:
        changes["predictions"] = predictions
    with Client(server) as client:
        resource = _resource(client, model, dataset, version, changes)
    if json_output:
        print_json(msgspec.to_builtins(resource))
        return
    title = getattr(resource, "name", None) or f"version {version} of {model}"
    say(f"{title}: {resource.description or 'no description'}")
    say(f"tags: {', '.join(resource.tags) or 'none'}")
    if (policy := getattr(resource, "predictions", None)) is not None:
        say(f"predictions: {policy}")


def _resource(
    client: Client, model: str, dataset: str | None, version: int | None, changes: dict[str, Any]
) -> Model | Dataset | Calibrator:
    """Change a resource if there are changes, and return it."""
    if dataset is not None:
        if changes:
            return client.update_dataset(model, dataset, **changes)
        return client.get_dataset(model, dataset)
    if version is not None:
        if changes:
            return client.update_calibrator(model, version, **changes)
        return client.get_calibrator(model, version)
    return client.update_model(model, **changes) if changes else client.get_model(model)
