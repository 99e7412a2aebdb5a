"""`recalib drop-candidate`: reject a candidate version on a server."""

from __future__ import annotations

from typing import Annotated

import typer

from recalib.cli.arguments import JsonOutput, ModelName, ServerUrl
from recalib.reporting.terminal import print_json, say


def drop_candidate(
    model: ModelName,
    version: Annotated[int, typer.Argument(help="The candidate's version.", show_default=False)],
    server: ServerUrl,
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")] = "",
    json_output: JsonOutput = False,
) -> None:
    """Drop a candidate of a model on a server.

    The candidate is being compared with the champion, or waits for promotion.
    """
    import msgspec

    from recalib.client import Client

    with Client(server) as client:
        candidate = client.drop_candidate(model, version, reason=reason)
    if json_output:
        print_json(msgspec.to_builtins(candidate))
    else:
        verdict = f"candidate {candidate.version} of {model} is {candidate.verdict}"
        say(f"{verdict}; the champion still serves")
