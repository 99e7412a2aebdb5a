"""`recalib serve`: run the REST and gRPC servers with their workers."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from typing import Annotated, Any

import typer

from recalib.cli import options
from recalib.cli.context import (
    check_package,
    create_home,
    exit_on_sigterm,
    load_settings,
    open_registry,
    warn_of_unknown_variables,
)
from recalib.cli.network import listen, reserve_grpc_port
from recalib.cli.options import setting_option
from recalib.core.packages import check_installed
from recalib.errors import InputError
from recalib.observability import logs, telemetry
from recalib.reporting.terminal import say
from recalib.settings import Settings

log = logging.getLogger(__name__)

_PACKAGES = ("fastapi", "grpc", "onnx", "onnxruntime", "pyarrow", "sqlalchemy", "uvicorn")


def serve(
    host: Annotated[str | None, setting_option("host", "Address to listen on.")] = None,
    port: Annotated[int | None, setting_option("port", "Port of REST.")] = None,
    grpc_port: Annotated[
        int | None, setting_option("grpc_port", "Port of gRPC; -1 for none.")
    ] = None,
    workers: Annotated[int | None, setting_option("workers", "Server processes.")] = None,
    job_workers: Annotated[
        int | None,
        setting_option("job_workers", "Worker processes that the server starts."),
    ] = None,
    require_keys: Annotated[
        bool, typer.Option("--require-keys", help="Require an API key for every request.")
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Serve without API keys on an address that other machines reach."
        ),
    ] = False,
    home: options.Home = None,
    database_url: options.DatabaseUrl = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the URLs as JSON.")] = False,
) -> None:
    """Serve REST and gRPC, with a worker.

    Every option is also an environment variable.
    """
    given = {
        "host": host,
        "port": port,
        "grpc_port": grpc_port,
        "workers": workers,
        "job_workers": job_workers,
        "require_keys": require_keys or None,
        "insecure": insecure or None,
        "home": home,
        "database_url": database_url,
    }
    with exit_on_sigterm() as stop_requested:
        status: Any = 0
        try:
            _serve(load_settings(**given), json_output)
        except SystemExit as exit_request:
            status = exit_request.code
        except Exception as error:
            # SIGTERM can interrupt a transaction at startup; the error that follows is expected.
            if not stop_requested.is_set():
                raise
            log.warning("Stopped while starting: %r", error, extra={"action": "start_stopped"})
        # Exit without finalising the interpreter: threads may still run in drivers that hang, and
        # finalisation would crash them. It would also not ignore a second signal.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 0)


def require_authentication(settings: Settings) -> Settings:
    """Return the settings with API keys required if other machines can reach the address.

    Raises
    ------
    InputError: other machines can reach the address, and there is neither an active API key nor a
        token issuer nor `--insecure`.
    """
    from service.addresses import is_loopback

    has_issuer = _has_token_issuer(settings)
    if settings.insecure or is_loopback(settings.host):
        return settings
    if not has_issuer and not _has_active_keys(settings):
        raise InputError(
            "host",
            found=f"{settings.host!r}, which other machines reach, and no API key",
            accepted="a loopback address, or a key (recalib keys create), or RECALIB_OIDC_ISSUER, "
            "or --insecure",
        )
    return settings.model_copy(update={"require_keys": True})


def _serve(settings: Settings, json_output: bool) -> None:
    check_package("service")
    check_installed("serve", *_PACKAGES, requirement="recalib[serve]")
    from service.addresses import check_tls

    settings = require_authentication(settings)
    warning = check_tls(settings)
    create_home(settings.home)
    listener, reserved = listen(settings), reserve_grpc_port(settings)
    ports = {"port": listener.getsockname()[1]}
    if reserved is not None:
        ports["grpc_port"] = reserved.getsockname()[1]
    settings = settings.model_copy(update=ports)
    logs.configure(settings)
    warn_of_unknown_variables()
    if warning:
        log.warning("%s", warning, extra={"action": "unencrypted"})
    telemetry.check(settings)
    if settings.dataset_roots:
        from recalib.references import DatasetRoots  # it imports NumPy

        DatasetRoots(settings.dataset_roots)
    from service.run import serve as run_server

    _print_urls(settings, json_output)
    run_server(settings, listener)


def _has_token_issuer(settings: Settings) -> bool:
    """Return whether an OIDC issuer is set; `InputError` if its settings are incomplete."""
    if not settings.oidc_issuer:
        return False
    from service.access.oidc import OidcConfig

    return OidcConfig.of(settings) is not None


def _has_active_keys(settings: Settings) -> bool:
    with open_registry(settings) as registry:
        if registry.missing_database_file is not None:
            return False
        registry.migrate()
        with registry.reading() as tx:
            return bool(tx.api_keys.active())


def _print_urls(settings: Settings, json_output: bool) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.tls_certificate else "http"
    url = f"{scheme}://{host}:{settings.port}"
    grpc_url = f"{host}:{settings.grpc_port}" if settings.grpc_port >= 0 else None
    if json_output:
        # One line: a parent process can wait for it.
        document = {
            "url": url, "grpc_url": grpc_url, "home": str(settings.home), "pid": os.getpid()
        }  # fmt: skip
        typer.echo(json.dumps(document))
    else:
        grpc = "" if grpc_url is None else f", gRPC on {grpc_url}"
        say(f"Recalib on {url} (docs at {url}/docs){grpc}, state in {settings.home}")
    sys.stdout.flush()
