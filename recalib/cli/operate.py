"""Commands that run something: demo, serve, worker."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from recalib.errors import InputError
from recalib.settings import Settings
from recalib.terminal import say

__all__ = ["demo", "serve", "worker"]

_Home = Annotated[
    Path | None, typer.Option(help="Folder for the database and the data. [RECALIB_HOME]")
]
_Database = Annotated[
    str | None, typer.Option(help="SQLAlchemy URL of the registry. [RECALIB_DATABASE_URL]")
]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [RECALIB_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of REST. [RECALIB_PORT]")] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes. [RECALIB_WORKERS]")] = None,
    job_workers: Annotated[
        int | None,
        typer.Option(help="Workers started beside the server. [RECALIB_JOB_WORKERS]"),
    ] = None,
    home: _Home = None,
    database_url: _Database = None,
    json_output: Annotated[bool, typer.Option("--json", help="Announce in JSON.")] = False,
) -> None:
    """Serve REST, with a worker beside it; every option is also an environment variable."""
    settings = _settings(
        host=host,
        port=port,
        workers=workers,
        job_workers=job_workers,
        home=home,
        database_url=database_url,
    )
    _refuse_open_doors(settings.host)
    settings = settings.model_copy(update={"port": _free_port(settings)})
    _log_to_stderr()
    from service.run import serve as run

    url = f"http://{settings.host}:{settings.port}"
    if json_output:
        # One line, which whoever started this process can wait for.
        typer.echo(json.dumps({"url": url, "home": str(settings.home), "pid": os.getpid()}))
    else:
        say(f"Recalib on {url} (docs at {url}/docs), state in {settings.home}")
    sys.stdout.flush()
    run(settings)


def worker(
    home: _Home = None,
    database_url: _Database = None,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
) -> None:
    """Do jobs from the registry's queue until told to stop."""
    settings = _settings(home=home, database_url=database_url)
    _log_to_stderr()
    from training.run import run

    run(settings, embedded=embedded)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Train a small network, serve it, calibrate it, and show what changed."""
    from recalib.demo import run

    run(keep=keep, json_output=json_output)


def _settings(**given: Any) -> Settings:
    """Return the environment's settings with what the command line gave."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InputError(name, found=repr(first.get("input")), accepted=first["msg"]) from None


def _refuse_open_doors(host: str) -> None:
    """Until there are keys, whoever reaches the port may do everything."""
    try:
        addresses = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:
        raise InputError("host", found=repr(host), accepted="an address of this machine") from None
    if not all(one.startswith("127.") or one == "::1" for one in addresses):
        raise InputError(
            "host",
            found=repr(host),
            accepted="a loopback address: this version has no API keys to guard any other",
        )


def _free_port(settings: Settings) -> int:
    """Return the port to listen on: the one asked for if it is free, any free one for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise InputError(
                "port", found=f"{settings.port} ({error.strerror})", accepted="a free port"
            ) from None
        return int(probe.getsockname()[1])


def _log_to_stderr() -> None:
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
