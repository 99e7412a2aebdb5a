"""`recalib keys`: create, limit, list and revoke API keys in the registry."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from recalib.cli import options
from recalib.cli.context import create_home, current_actor, load_settings, open_registry
from recalib.cli.sections import SectionedGroup
from recalib.contract.base import utc
from recalib.core.access import SCOPES, ApiKey, Limits, check_secret
from recalib.errors import InputError
from recalib.reporting.terminal import print_json, show, warn

app = typer.Typer(cls=SectionedGroup, help="Manage API keys.", rich_markup_mode=None)

#: For each limit: its unit, and the text for a limit of 0, which means unlimited.
_LIMIT_TEXTS = {
    "requests_per_second": ("requests/s", "any number of requests"),
    "rows_per_second": ("rows/s", "any number of rows"),
    "concurrency": ("at once", "any number at once"),
    "body_bytes": ("bytes at most", "bodies of any size"),
    "queued_jobs": ("jobs that wait", "any number of jobs"),
}
_DAY_SECONDS = 86_400.0

_RateOption = Annotated[
    float | None,
    typer.Option(help="Requests per second; 0 is unlimited. By default, the server's setting."),
]
_RowsRateOption = Annotated[float | None, typer.Option(help="Calibrated rows per second.")]
_ConcurrencyOption = Annotated[int | None, typer.Option(help="Concurrent requests.")]
_MaxBodyOption = Annotated[int | None, typer.Option(help="Size of the largest body, in bytes.")]

_QueuedJobsOption = Annotated[int | None, typer.Option(help="Jobs that wait for a worker.")]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="The name of the caller in the audit trail.")],
    scope: Annotated[list[str], typer.Option(help=f"{', '.join(SCOPES)}; repeatable.")],
    model: Annotated[
        list[str] | None,
        typer.Option(help="A model that the key is for; repeatable. Default: all."),
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(help="Lifetime in days. By default, the key never expires.")
    ] = None,
    rate: _RateOption = None,
    rows_rate: _RowsRateOption = None,
    concurrency: _ConcurrencyOption = None,
    max_body: _MaxBodyOption = None,
    queued_jobs: _QueuedJobsOption = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(help="A file with the secret to use; repeating the command changes nothing."),
    ] = None,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Create a key and print its secret.

    The secret is not stored, and cannot be shown again.
    """
    file_secret = None if secret_file is None else _read_secret(secret_file)
    limits = Limits(rate, rows_rate, concurrency, max_body, queued_jobs)
    lifetime = None if expires_days is None else expires_days * _DAY_SECONDS
    settings = load_settings(home=home, database_url=database_url)
    create_home(settings.home)
    with open_registry(settings) as registry:
        registry.migrate()
        with registry.transaction() as tx:
            if file_secret is not None and tx.api_keys.is_valid(name, file_secret):
                secret = file_secret
            else:
                secret = tx.api_keys.create(
                    name, scope, model or None, lifetime, file_secret, limits, current_actor()
                )
    if file_secret is not None:
        # The author of the file knows the secret, and it must not appear in a log.
        show({"name": name}, f"the key {name} is good", json_output=json_output)
    elif json_output:
        print_json({"name": name, "key": secret})
    else:
        typer.echo(secret)
        warn("Keep it: it is shown only now. Send it as Authorization: Bearer KEY.")


@app.command()
def limit(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    rate: _RateOption = None,
    rows_rate: _RowsRateOption = None,
    concurrency: _ConcurrencyOption = None,
    max_body: _MaxBodyOption = None,
    queued_jobs: _QueuedJobsOption = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Reset the other limits to the server's settings.")
    ] = False,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Change the limits of a key.

    Limits without an option stay. Servers follow within a second.
    """
    limits = Limits(rate, rows_rate, concurrency, max_body, queued_jobs)
    if limits == Limits() and not reset:
        raise InputError("limits", found="none", accepted="one or more, or --reset")
    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, registry.transaction() as tx:
        key = tx.api_keys.limit(name, limits, current_actor(), reset=reset)
    described = "; ".join(_describe_limits(key)) or "limits of the server"
    show(_to_json(key), f"the key {name}: {described}", json_output=json_output)


@app.command("list")
def list_keys(
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """List all keys, without their secrets.

    Revoked and expired keys are listed as well.
    """
    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, registry.reading() as tx:
        keys = tx.api_keys.all()
    show(list(map(_to_json, keys)), *map(_describe, keys), json_output=json_output)


@app.command()
def revoke(
    name: Annotated[str, typer.Argument(help="The key's name.")],
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: options.JsonOutput = False,
) -> None:
    """Revoke a key permanently.

    Servers refuse it within a second.
    """
    settings = load_settings(home=home, database_url=database_url)
    with open_registry(settings) as registry, registry.transaction() as tx:
        key = tx.api_keys.revoke(name, current_actor())
    show(_to_json(key), f"the key {name} is revoked", json_output=json_output)


def _read_secret(file: Path) -> str:
    try:
        return check_secret(file.read_text().strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            "--secret-file", found=f"{file} ({error})", accepted="a file that holds an API key"
        ) from None


def _to_json(key: ApiKey) -> dict[str, Any]:
    return {
        **{field: value for field, value in asdict(key).items() if field != "digest"},
        "state": key.state,
    }


def _describe(key: ApiKey) -> str:
    models = "all models" if key.models is None else ", ".join(key.models)
    parts = (key.state, ", ".join(key.scopes), models, *_describe_limits(key), _dates(key))
    return f"{key.name}: {'; '.join(parts)}"


def _describe_limits(key: ApiKey) -> list[str]:
    """Return the limits of a key in words, without those that the server sets."""
    texts = []
    for name, value in asdict(key.limits).items():
        if value is not None:
            unit, unlimited = _LIMIT_TEXTS[name]
            texts.append(unlimited if value == 0 else f"{value:.15g} {unit}")
    return texts


def _dates(key: ApiKey) -> str:
    expires = "" if key.expires_at is None else f", expires {utc(key.expires_at):%Y-%m-%d}"
    return f"made {utc(key.created_at):%Y-%m-%d}{expires}"
