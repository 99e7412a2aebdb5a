"""`recalib doctor`: check the health of a deployment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from recalib.cli import options
from recalib.cli.context import check_package, load_settings, open_registry
from recalib.reporting.terminal import show
from recalib.settings.effective import effective_settings

_STATE_TEXTS = {"ok": "ok     ", "warning": "warning", "failed": "FAILED "}


def doctor(
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    show_settings: Annotated[
        bool, typer.Option("--settings", help="List every setting and its origin instead.")
    ] = False,
    json_output: options.JsonOutput = False,
) -> None:
    """Check the health of a deployment.

    Checks cover settings, TLS, database, schema, blobs, keys, jobs, monitoring, clock and GPU. They
    change nothing. The settings are those of `recalib serve`, from the same environment. The exit
    status is 1 if a check has failed; a warning announces a later failure.
    """
    settings = load_settings(home=home, database_url=database_url)
    given = {"home": home, "database_url": database_url}
    from_command_line = {name for name, value in given.items() if value is not None}
    if show_settings:
        effective = effective_settings(settings, from_command_line)
        lines = (f"{item['name']} = {item['value']!r}  ({item['from']})" for item in effective)
        show(effective, *lines, json_output=json_output)
        return
    check_package("service")
    from service.doctor import check_gpu, check_pictures, check_registry, check_settings

    results = [*check_settings(settings, from_command_line), check_gpu(), check_pictures()]
    with open_registry(settings) as registry:
        results += check_registry(registry, settings)
    lines = (f"{_STATE_TEXTS[item.state]}  {item.check}: {item.detail}" for item in results)
    show([asdict(result) for result in results], *lines, json_output=json_output)
    if any(result.state == "failed" for result in results):
        raise typer.Exit(1)
