"""Commands for those who run the service: demo, serve, worker, rotate-key."""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from recalib.cli.arguments import Json
from recalib.errors import InputError
from recalib.observability import logs, telemetry
from recalib.settings import Settings
from recalib.settings.toml_file import origin_of
from recalib.terminal import say

if TYPE_CHECKING:
    from recalib.registry import Registry

__all__ = [
    "Database",
    "Home",
    "check_tls",
    "demo",
    "guarded",
    "is_loopback",
    "make_home",
    "opened",
    "rotate_key",
    "serve",
    "settings_of",
    "whoever",
    "worker",
]

log = logging.getLogger(__name__)

#: Connections that may wait to be accepted, as uvicorn has it.
_BACKLOG = 2048

Home = Annotated[
    Path | None, typer.Option(help="Folder for the database and the data. [RECALIB_HOME]")
]
Database = Annotated[
    str | None, typer.Option(help="SQLAlchemy URL of the registry. [RECALIB_DATABASE_URL]")
]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on. [RECALIB_HOST]")] = None,
    port: Annotated[int | None, typer.Option(help="Port of REST. [RECALIB_PORT]")] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port of gRPC; -1 for none. [RECALIB_GRPC_PORT]")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes. [RECALIB_WORKERS]")] = None,
    job_workers: Annotated[
        int | None,
        typer.Option(help="Workers started beside the server. [RECALIB_JOB_WORKERS]"),
    ] = None,
    require_keys: Annotated[
        bool, typer.Option("--require-keys", help="Answer nobody without an API key.")
    ] = False,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Without API keys at an address that other machines reach."
        ),
    ] = False,
    home: Home = None,
    database_url: Database = None,
    json_output: Annotated[bool, typer.Option("--json", help="Announce in JSON.")] = False,
) -> None:
    """Serve REST, with a worker beside it; every option is also an environment variable."""
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
    with _ended_by_sigterm() as told_to_stop:
        status: Any = 0
        try:
            _serve(settings_of(**given), json_output)
        except SystemExit as ended:
            status = ended.code
        except Exception as error:
            # Stopped in the middle of a transaction, say: what fails for that is no failure.
            if not told_to_stop.is_set():
                raise
            log.warning("Stopped while starting: %r", error, extra={"action": "start_stopped"})
        # Here and now: threads are left behind in drivers that hang, on purpose, and the end of
        # the interpreter would take the ground from under them; nor does it ignore a second signal.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 0)


def _serve(settings: Settings, json_output: bool) -> None:
    settings = guarded(settings)
    check_tls(settings)
    make_home(settings.home)
    listener, reserved = _listen(settings), _reserve(settings)
    ports = {"port": listener.getsockname()[1]}
    if reserved is not None:
        ports["grpc_port"] = reserved.getsockname()[1]
    settings = settings.model_copy(update=ports)
    logs.configure(settings)
    telemetry.check(settings)
    from service.run import serve as run

    _announce(settings, json_output)
    run(settings, listener)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[threading.Event]:
    """End the block by an exception on SIGTERM, with status 0; what it gives is set then.

    Uvicorn shuts down on this signal and then raises it again. As an exception it unwinds through
    what runs, and takes workers and temporary files along. It comes once: a second signal is not to
    end that in the middle.
    """
    told = threading.Event()

    def stop(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, lambda *_: None)
        told.set()
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)


def worker(
    home: Home = None,
    database_url: Database = None,
    embedded: Annotated[bool, typer.Option("--embedded", hidden=True)] = False,
) -> None:
    """Do jobs from the registry's queue until told to stop."""
    # Until it has handlers of its own.
    with _ended_by_sigterm():
        settings = settings_of(home=home, database_url=database_url)
        logs.configure(settings)
        telemetry.check(settings)
        from training.main import run

        run(settings, embedded=embedded)


def rotate_key(
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Give up all keys before it, as after a leak.")
    ] = False,
    home: Home = None,
    database_url: Database = None,
    json_output: Json = False,
) -> None:
    """Sign prediction ids with a new key from now on; ids that are out stay good until they expire.

    Servers notice within seconds.
    """
    settings = settings_of(home=home, database_url=database_url)
    with opened(settings) as registry, registry.transaction() as tx:
        key = tx.signing_keys.rotate()
        revoked = tx.signing_keys.revoke() if revoke else 0
        said = f"{revoked} before it are given up" if revoke else ""
        tx.audit.note(whoever(), "rotate_key", None, f"key {key.number}", said)
    if json_output:
        typer.echo(json.dumps({"key": key.number, "revoked": revoked}))
    elif revoke:
        say(f"key {key.number} signs; ids of the {revoked} before it are refused from now on")
    else:
        say(f"key {key.number} signs; ids of the keys before it are good until they expire")


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running.")] = False,
    examples: Annotated[
        Path | None,
        typer.Option(help="A folder of NAME-validation.npz and NAME-test.npz."),
    ] = None,
    json_output: Json = False,
) -> None:
    """Train a small network, serve it, calibrate it, and show what changed."""
    from recalib.demo import run

    run(keep=keep, json_output=json_output, examples=examples)


def settings_of(**given: Any) -> Settings:
    """Return the environment's settings with what the command line gave."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        # As whoever has to change it knows it.
        option = f"--{name.replace('_', '-')}"
        name = origin_of(name).partition(",")[0] if given.get(name) is None else option
        raise InputError(name, found=repr(first.get("input")), accepted=first["msg"]) from None


def whoever() -> str:
    """Return who runs this program, as the audit trail has it."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a container's user may have no name
        return f"cli:{os.getuid()}"


def make_home(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            "home", found=f"{home} ({error.strerror})", accepted="a folder, or a place for one"
        ) from None


def guarded(settings: Settings) -> Settings:
    """Return settings with which nobody but who may gets in."""
    oidc = _checked_oidc(settings)
    if settings.insecure or is_loopback(settings.host):
        return settings
    # Whoever reaches the port may do everything that no key guards.
    if not oidc and not _has_keys(settings):
        raise InputError(
            "host",
            found=f"{settings.host!r}, which other machines reach, and no API key",
            accepted="a loopback address, or a key (recalib keys create), or RECALIB_OIDC_ISSUER, "
            "or --insecure",
        )
    return settings.model_copy(update={"require_keys": True})


def _checked_oidc(settings: Settings) -> bool:
    """Return whether tokens of an issuer are taken; `InputError` where they could not be."""
    if not settings.oidc_issuer:
        return False
    from service.access.oidc import OidcConfig

    return OidcConfig.of(settings) is not None


def _has_keys(settings: Settings) -> bool:
    with opened(settings) as registry:
        if registry.absent_file is not None:
            return False
        registry.migrate()
        with registry.reading() as tx:
            return bool(tx.api_keys.active())


def check_tls(settings: Settings) -> None:
    """Raise `InputError` for a certificate without its key, or files that are no such pair."""
    names = ("tls_certificate", "tls_key")
    given = [getattr(settings, name) for name in names]
    if not any(given):
        return
    for name, path in zip(names, given, strict=True):
        variable = f"RECALIB_{name.upper()}"
        if not path:
            raise InputError(
                variable, found="nothing", accepted="a file, as the other one is given"
            )
        if not os.access(path, os.R_OK) or not Path(path).is_file():
            raise InputError(variable, found=repr(path), accepted="a file that can be read")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*given)
    except ssl.SSLError as error:
        found = f"{given[0]!r} with {given[1]!r} ({error.reason or error})"
        accepted = "a certificate chain and its unencrypted key, in PEM"
        raise InputError("RECALIB_TLS_CERTIFICATE", found=found, accepted=accepted) from None


def is_loopback(host: str) -> bool:
    """Return whether nobody but this machine reaches an address."""
    try:
        addresses = {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:
        raise InputError("host", found=repr(host), accepted="an address of this machine") from None
    return all(one.startswith("127.") or one == "::1" for one in addresses)


@contextlib.contextmanager
def opened(settings: Settings) -> Iterator[Registry]:
    """Give the registry that settings name, closed at the end."""
    from recalib.registry import Registry

    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    try:
        yield registry
    finally:
        registry.close()


def _listen(settings: Settings) -> socket.socket:
    """Return a socket that listens at the address to serve; port 0 is any free one.

    From now on: who connects early waits, and two servers never both take a port for theirs.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET)
    try:
        # A port on which a killed server left connections can be had at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.host, settings.port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(
            "port", found=f"{settings.port} ({error.strerror})", accepted="a free port"
        ) from None
    return listener


def _reserve(settings: Settings) -> socket.socket | None:
    """Return a socket that keeps the port of gRPC for this server's processes, if there is one.

    They listen there themselves, all at the same port, which only sockets that share it may. So
    what is asked first is whether anybody listens there already, who might share it as well.
    """
    if settings.grpc_port < 0:
        return None
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    reserved = socket.socket(family)
    try:
        with socket.socket(family) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            asking.bind((settings.host, settings.grpc_port))
        # It never listens: connections go to those that do. Nor may its address be used again, or
        # another server could ask in vain in the seconds until they do.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((settings.host, settings.grpc_port))
    except OSError as error:
        reserved.close()
        raise InputError(
            "grpc_port",
            found=f"{settings.grpc_port} ({error.strerror})",
            accepted="a free port, or -1 for no gRPC",
        ) from None
    return reserved


def _announce(settings: Settings, json_output: bool) -> None:
    """Say where the server is."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "https" if settings.tls_certificate else "http"
    url = f"{scheme}://{host}:{settings.port}"
    grpc = f"{host}:{settings.grpc_port}" if settings.grpc_port >= 0 else None
    if json_output:
        # One line, which whoever started this process can wait for.
        found = {"url": url, "grpc_url": grpc, "home": str(settings.home), "pid": os.getpid()}
        typer.echo(json.dumps(found))
    else:
        besides = "" if grpc is None else f", gRPC on {grpc}"
        say(f"Recalib on {url} (docs at {url}/docs){besides}, state in {settings.home}")
    sys.stdout.flush()
