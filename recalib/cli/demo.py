"""`recalib demo`: train, serve and calibrate a small network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recalib.cli import options


def demo(
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Leave the server running, with a simulated month of three models."
        ),
    ] = False,
    examples: Annotated[
        Path | None,
        typer.Option(help="A folder with pairs NAME-validation.npz and NAME-test.npz."),
    ] = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Train, serve and calibrate a small network.

    The command shows the metrics before and after calibration.
    """
    from recalib.cli.demo_steps import run

    run(keep=keep, json_output=json_output, examples=examples)
