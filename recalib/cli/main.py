"""The program `recalib`: its commands, and how it ends."""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from recalib.cli import (
    auditing,
    comparing,
    diagnosing,
    fusing,
    keeping,
    keys,
    operate,
    preparing,
    remote,
    replaying,
    training,
    watching,
    work,
)
from recalib.errors import RecalibError
from recalib.sanitize import visible

__all__ = ["app", "main"]

#: Bad input; the same as click's own code for bad usage.
_BAD_INPUT = 2
_INTERRUPTED = 130

app = typer.Typer(
    name="recalib",
    help="Makes the probabilities of deployed classifiers tell the truth.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import recalib

        typer.echo(recalib.__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; anywhere.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None: ...


app.command()(work.fit)
app.command()(work.apply)
app.command()(remote.calibrate)
app.command()(work.export)
app.command()(fusing.fuse)
app.command()(work.evaluate)
app.command()(comparing.compare)
app.command()(comparing.report)
app.command()(replaying.replay)
app.command()(watching.monitoring)
app.command("drop-candidate")(watching.drop_candidate)
app.command()(training.train)
app.command()(operate.demo)
app.command()(preparing.prepare)
app.command()(operate.serve)
app.command()(operate.worker)
app.command()(diagnosing.doctor)
app.command()(keeping.backup)
app.command()(keeping.restore)
app.command()(auditing.audit)
app.command("rotate-key")(operate.rotate_key)
app.add_typer(keys.app, name="keys")


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the program and exit: 0, or 2 on bad input, with one line that says what was wrong."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # Wherever it stands: whoever adds it to a failed command adds it at the end.
    debug = "--debug" in arguments
    arguments = [one for one in arguments if one != "--debug"] or ["--help"]
    try:
        status = app(arguments, prog_name="recalib", standalone_mode=False)
    except TyperException as error:
        status = _fail(f"error: {error.format_message()}", error.exit_code, debug)
    except RecalibError as error:
        status = _fail(f"error: {error}", _BAD_INPUT, debug)
    except (KeyboardInterrupt, typer.Abort):
        status = _fail("interrupted", _INTERRUPTED, debug)
    except OSError as error:  # of the machine, such as a full disk behind standard output
        status = _fail(f"error: {error} (see --debug)", 1, debug)
    except Exception as error:  # the last resort: one line, not a screenful
        status = _fail(f"internal error: {error!r} (see --debug)", 1, debug)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    typer.echo(visible(" ".join(line.split())), err=True)
    return status
