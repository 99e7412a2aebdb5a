"""`recalib worker`: run jobs from the registry's queue."""

from __future__ import annotations

from typing import Annotated

import typer

from recalib.cli import options
from recalib.cli.context import (
    check_package,
    exit_on_sigterm,
    load_settings,
    warn_of_unknown_variables,
)
from recalib.observability import logs, telemetry


def worker(
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
) -> None:
    """Run jobs from the registry's queue."""
    # The worker installs its own signal handlers later.
    with exit_on_sigterm():
        settings = load_settings(home=home, database_url=database_url)
        logs.configure(settings)
        if not embedded:  # the server has warned
            warn_of_unknown_variables()
        telemetry.check(settings)
        check_package("training")
        from training.main import run

        run(settings, embedded=embedded)
