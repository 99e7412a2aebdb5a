"""Commands for API keys: create, limit, list, revoke; they go to the registry, not to a server."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from recalib.access import SCOPES, ApiKey, Limits, check_secret
from recalib.cli.arguments import Json
from recalib.cli.operate import Database, Home, make_home, opened, settings_of, whoever
from recalib.errors import InputError
from recalib.terminal import say, warn

__all__ = ["app"]

app = typer.Typer(
    help="API keys: who may ask a server for what.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
)

#: Of each limit, its unit, and what it is where there is none.
_UNITS = {
    "requests_per_second": ("requests/s", "any number of requests"),
    "rows_per_second": ("rows/s", "any number of rows"),
    "concurrency": ("at once", "any number at once"),
    "body_bytes": ("bytes at most", "bodies of any size"),
}
_DAY_SECONDS = 86_400.0

_Rate = Annotated[
    float | None, typer.Option(help="Requests a second; 0 is no limit. By default, as servers say.")
]
_RowsRate = Annotated[float | None, typer.Option(help="Rows a second that it may have calibrated.")]
_Concurrency = Annotated[
    int | None, typer.Option(help="Requests that it may have in work at once.")
]
_MaxBody = Annotated[int | None, typer.Option(help="Bytes of its largest body.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the audit trail calls whoever comes with it.")],
    scope: Annotated[list[str], typer.Option("--scope", help=f"{', '.join(SCOPES)}; repeatable.")],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", help="Bind it to a model; repeatable. Without, it is for all."),
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(help="Days that it is good for; without, until it is revoked.")
    ] = None,
    rate: _Rate = None,
    rows_rate: _RowsRate = None,
    concurrency: _Concurrency = None,
    max_body: _MaxBody = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with the secret that it is to have; done again, nothing happens."
        ),
    ] = None,
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Make a key and print its secret, which is kept nowhere and shown only now."""
    given = None if secret_file is None else _secret_in(secret_file)
    limits = Limits(rate, rows_rate, concurrency, max_body)
    lifetime = None if expires_days is None else expires_days * _DAY_SECONDS
    settings = settings_of(home=home, database_url=database_url)
    make_home(settings.home)
    with opened(settings) as registry:
        registry.migrate()
        with registry.transaction() as tx:
            if given is not None and tx.api_keys.is_good(name, given):
                secret = given
            else:
                secret = tx.api_keys.create(
                    name, scope, model or None, lifetime, given, limits, whoever()
                )
    if given is not None:
        # Whoever wrote the file knows it; it has no business in a log.
        typer.echo(json.dumps({"name": name})) if json_output else say(f"the key {name} is good")
    elif json_output:
        typer.echo(json.dumps({"name": name, "key": secret}))
    else:
        typer.echo(secret)
        warn("Keep it: it is shown only now. Send it as Authorization: Bearer KEY.")


@app.command()
def limit(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    rate: _Rate = None,
    rows_rate: _RowsRate = None,
    concurrency: _Concurrency = None,
    max_body: _MaxBody = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Have those that are not named be as servers say.")
    ] = False,
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Give a key other limits; those that are not named stay. Servers follow within a second."""
    limits = Limits(rate, rows_rate, concurrency, max_body)
    if limits == Limits() and not reset:
        raise InputError("limits", found="none", accepted="one or more, or --reset")
    with (
        opened(settings_of(home=home, database_url=database_url)) as registry,
        registry.transaction() as tx,
    ):
        key = tx.api_keys.limit(name, limits, whoever(), reset=reset)
    if json_output:
        typer.echo(json.dumps(_plain(key)))
    else:
        say(f"the key {name}: {'; '.join(_limits(key)) or 'limits as servers say'}")


@app.command("list")
def list_keys(home: Home = None, database_url: Database = None, json_output: Json = False) -> None:
    """List all keys that ever were, without their secrets."""
    with (
        opened(settings_of(home=home, database_url=database_url)) as registry,
        registry.reading() as tx,
    ):
        found = tx.api_keys.every()
    if json_output:
        typer.echo(json.dumps([_plain(key) for key in found]))
        return
    for key in found:
        models = "all models" if key.models is None else ", ".join(key.models)
        said = (key.state, ", ".join(key.scopes), models, *_limits(key), _times(key))
        say(f"{key.name}: {'; '.join(said)}")


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Give a key up for good; servers refuse it within a second."""
    with (
        opened(settings_of(home=home, database_url=database_url)) as registry,
        registry.transaction() as tx,
    ):
        key = tx.api_keys.revoke(name, whoever())
    if json_output:
        typer.echo(json.dumps(_plain(key)))
    else:
        say(f"the key {name} is revoked")


def _secret_in(file: Path) -> str:
    try:
        return check_secret(file.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "--secret-file", found=f"{file} ({error})", accepted="a file that holds an API key"
        ) from None


def _plain(key: ApiKey) -> dict[str, Any]:
    return {
        **{field: value for field, value in asdict(key).items() if field != "digest"},
        "state": key.state,
    }


def _limits(key: ApiKey) -> list[str]:
    """Return what a key's own limits are, in words."""
    own = {name: value for name, value in asdict(key.limits).items() if value is not None}
    return [
        words if value == 0 else f"{value:.15g} {unit}"
        for name, value in own.items()
        for unit, words in [_UNITS[name]]
    ]


def _times(key: ApiKey) -> str:
    made = f"made {_day(key.created_at)}"
    return made if key.expires_at is None else f"{made}, expires {_day(key.expires_at)}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
