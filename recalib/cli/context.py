"""Setup that several commands share: settings, the registry, the caller's name and SIGTERM."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import ValidationError

import recalib
from recalib.core.violations import accepted_values
from recalib.errors import InputError
from recalib.settings import Settings
from recalib.settings.effective import unknown_variables
from recalib.settings.toml_file import origin_of

if TYPE_CHECKING:
    from recalib.registry import Registry

_log = logging.getLogger(__name__)


def check_package(name: str) -> None:
    """Raise `InputError` if Python would import another package of this name.

    `python -m` and PYTHONPATH put folders before the installed packages. A user's own `training` or
    `service` there would take the place of Recalib's.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return  # not installed; the import says so
    found = Path(spec.origin).parent
    installed = Path(recalib.__file__).parent.parent / name
    if found.resolve() != installed.resolve():
        raise InputError(
            f"the package {name!r}",
            found=str(found),
            accepted=f"{installed}; start the program `recalib`, not `python -m` in that folder "
            "(under torchrun: `torchrun --no-python recalib train`), and check PYTHONPATH",
        )


def load_settings(**options: Any) -> Settings:
    """Return the settings; options of the command line override the environment.

    Parameters
    ----------
    options: settings by name; None means that the command line does not give the option.

    Raises
    ------
    InputError: a value is invalid. The error names the option, variable or file that holds it.
    """
    try:
        return Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        option = f"--{name.replace('_', '-')}"
        source = origin_of(name).partition(",")[0] if options.get(name) is None else option
        raise InputError(
            source, found=repr(first.get("input")), accepted=accepted_values(first)
        ) from None


def warn_of_unknown_variables() -> None:
    """Log a warning for each variable with the prefix of the settings that is not a setting."""
    for sentence in unknown_variables():
        _log.warning(sentence, extra={"action": "unknown_setting"})


@contextlib.contextmanager
def open_registry(settings: Settings) -> Iterator[Registry]:
    """Open the registry of the settings, and close it at the end of the block."""
    # SQLAlchemy is slow to import, and most commands do not need it.
    from recalib.registry import Registry

    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    try:
        yield registry
    finally:
        registry.close()


def create_home(home: Path) -> None:
    """Create the home folder if it does not exist; `InputError` if that is not possible."""
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "home",
            found=f"{home} ({error.strerror})",
            accepted="a folder, or a path where one can be created",
        ) from None


def current_actor() -> str:
    """Return the user that runs this program, as the audit trail names it: ``cli:USER``."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # the user of a container may have no name
        return f"cli:{os.getuid()}"


@contextlib.contextmanager
def exit_on_sigterm() -> Iterator[threading.Event]:
    """Raise `SystemExit` with status 0 in the block on SIGTERM; the yielded event is set then.

    An exception unwinds the stack, so worker processes and temporary files are cleaned up. Uvicorn
    handles SIGTERM itself and raises it again after its shutdown. A second SIGTERM is ignored, so
    that it does not interrupt the cleanup.
    """
    received = threading.Event()

    def stop(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, lambda *_: None)
        received.set()
        sys.exit(0)

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets; a second one ends the process."""
    stop = threading.Event()

    def request_stop(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    previous = {
        number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
