"""The program `recalib`: its commands and exit statuses."""

from __future__ import annotations

import sys
import traceback
import warnings
from functools import cache
from typing import Annotated, Any, NoReturn, TextIO, cast

import typer
import typer.main
from typer.core import TyperGroup
from typer.exceptions import TyperException

from recalib.cli.api import app as api_app
from recalib.cli.apply import apply
from recalib.cli.audit import audit
from recalib.cli.backup import backup, record_backup
from recalib.cli.calibrate import calibrate
from recalib.cli.compare import compare
from recalib.cli.demo import demo
from recalib.cli.doctor import doctor
from recalib.cli.evaluate import evaluate
from recalib.cli.export import export
from recalib.cli.fit import fit
from recalib.cli.fuse import fuse
from recalib.cli.ingest import ingest
from recalib.cli.keys import app as keys_app
from recalib.cli.monitoring import monitoring
from recalib.cli.prepare import prepare
from recalib.cli.promote import promote, rollback
from recalib.cli.publish import publish
from recalib.cli.pull import pull
from recalib.cli.replay import replay
from recalib.cli.report import report
from recalib.cli.restore import restore
from recalib.cli.rotate_key import rotate_key
from recalib.cli.sections import FILES, OPERATION, SERVER, TRAINING, SectionedGroup
from recalib.cli.serve import serve
from recalib.cli.train import train
from recalib.cli.worker import worker
from recalib.core.packages import optional_packages
from recalib.core.sanitize import sanitize_text
from recalib.errors import RecalibError, RecalibWarning
from recalib.reporting.terminal import name_options, warn

#: Exit status of bad input; click uses the same for bad usage.
_BAD_INPUT_STATUS = 2
_INTERRUPTED_STATUS = 130

#: Commands of earlier versions, and the operations of `recalib api` that replace them.
_REPLACEMENTS = {
    "batch": "create_batch model=MODEL data=FILE --wait",
    "delete": "delete_model name=MODEL",
    "describe": "update_model name=MODEL description=TEXT",
    "drop-candidate": "drop_candidate model=MODEL version=VERSION",
    "evaluation": "evaluate model=MODEL dataset=NAME --wait",
    "events": "list_events",
    "models": "list_models",
    "retention": "update_model name=MODEL retention:=JSON",
    "upload": "upload_dataset model=MODEL name=NAME data=FILE",
    "webhooks": "list_webhooks",
}


class _Program(SectionedGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if (replacement := _REPLACEMENTS.get(args[0])) is not None:
            ctx.fail(f"`{args[0]}` is now `recalib api {replacement}`; see `recalib api --help`")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="recalib",
    cls=_Program,
    help="Calibrate the probabilities of deployed classifiers.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        import recalib

        typer.echo(recalib.__version__)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; any position.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None: ...


app.command(rich_help_panel=FILES)(fit)
app.command(rich_help_panel=FILES)(apply)
app.command("predict", hidden=True)(apply)  # as scikit-learn and MLflow call it
app.command(rich_help_panel=FILES)(evaluate)
app.command(rich_help_panel=FILES)(compare)
app.command(rich_help_panel=FILES)(report)
app.command(rich_help_panel=FILES)(replay)
app.command(rich_help_panel=FILES)(export)
app.command(rich_help_panel=FILES)(fuse)
app.command(rich_help_panel=TRAINING)(train)
app.command(rich_help_panel=SERVER)(publish)
app.command(rich_help_panel=SERVER)(pull)
app.command(rich_help_panel=SERVER)(calibrate)
app.command(rich_help_panel=SERVER)(monitoring)
app.command(rich_help_panel=SERVER)(promote)
app.command(rich_help_panel=SERVER)(rollback)
app.command(rich_help_panel=SERVER)(ingest)
app.add_typer(api_app, name="api", rich_help_panel=SERVER)
app.command(rich_help_panel=OPERATION)(demo)
app.command(rich_help_panel=OPERATION)(serve)
app.command(rich_help_panel=OPERATION)(worker)
app.command(rich_help_panel=OPERATION)(prepare)
app.command(rich_help_panel=OPERATION)(doctor)
app.add_typer(keys_app, name="keys", rich_help_panel=OPERATION)
app.command(rich_help_panel=OPERATION)(audit)
app.command(rich_help_panel=OPERATION)(backup)
app.command("record-backup", rich_help_panel=OPERATION)(record_backup)
app.command(rich_help_panel=OPERATION)(restore)
app.command("rotate-key", rich_help_panel=OPERATION)(rotate_key)


@cache
def root_command() -> TyperGroup:
    """Return the program as a click command, which takes 30 ms to build."""
    return cast(TyperGroup, typer.main.get_command(app))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, RecalibWarning):
        warn(str(message))
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the program and exit.

    The status is 0 on success, 1 on a failure of the machine or the program, 2 on bad input and 130
    on an interrupt. Standard error holds one line on the error; `--debug` adds the traceback.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # Users append --debug to a command that has failed, so every position is valid.
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        with warnings.catch_warnings(), optional_packages("recalib"):
            warnings.showwarning = _show_warning
            status = root_command()(arguments, prog_name="recalib", standalone_mode=False)
        if status == _INTERRUPTED_STATUS:  # typer returns it instead of raising
            raise KeyboardInterrupt
    except TyperException as error:
        status = _fail(f"error: {error.format_message()}", error.exit_code, debug)
    except RecalibError as error:
        status = _fail(f"error: {name_options(str(error))}", _BAD_INPUT_STATUS, debug)
    except (KeyboardInterrupt, typer.Abort):
        status = _fail("interrupted", _INTERRUPTED_STATUS, debug)
    except OSError as error:  # such as a full disk behind standard output
        status = _fail(f"error: {error} (see --debug)", 1, debug)
    except Exception as error:  # one line instead of a traceback
        status = _fail(f"internal error: {error!r} (see --debug)", 1, debug)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    typer.echo(sanitize_text(" ".join(line.split())), err=True)
    return status
