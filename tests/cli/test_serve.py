"""`recalib serve` and `worker`: settings, ports, and required authentication."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from recalib.cli.context import warn_of_unknown_variables
from recalib.cli.serve import require_authentication
from recalib.errors import InputError
from recalib.registry import Registry
from recalib.settings import Settings
from tests.cli.running import Cli
from tests.end_to_end.programs import Programs
from training.main import run as run_worker


def test_taken_port_is_rejected(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        result = cli("serve", "--port", port, "--home", "home")
    assert (result.status, result.out) == (2, "")
    assert (
        result.err == f"error: port: found {port} (Address already in use); accepted: a free port\n"
    )


@pytest.mark.parametrize("name", ["RECALIB_PORT", "RECALIB_LEASE_SECONDS"])
def test_invalid_setting_is_rejected(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "soon")
    result = cli("serve")
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith(f"error: {name}: found 'soon'; accepted: ")


def test_variables_that_are_not_settings_are_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RECALIB_BLOBS", "elsewhere")
    monkeypatch.setenv("RECALIB_PORT", "1")
    warn_of_unknown_variables()
    assert "RECALIB_BLOBS is not a setting: did you mean RECALIB_BLOB_URL?" in caplog.messages
    assert "RECALIB_PORT" not in caplog.text


def test_worker_without_the_folder_of_the_database_is_rejected(tmp_path: Path) -> None:
    """The error names the file, and nothing is created."""
    home = tmp_path / "missing"
    with pytest.raises(InputError, match=r"missing/recalib\.db, in a folder that does not exist"):
        run_worker(Settings(home=home), embedded=False)
    assert not home.exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "worker"])
def test_unsupported_database_is_rejected(programs: Programs, command: str) -> None:
    more = ["--port", 0] if command == "serve" else []
    process = programs.start(command, *more, "--database-url", "oracle://me:secret@host/x")
    assert process.wait() == 2
    assert programs.log_of(process).startswith("error: database_url: found oracle; accepted: ")
    assert programs.log_of(process).count("\n") == 1
    assert "secret" not in programs.log_of(process)


def test_public_address_requires_a_key(tmp_path: Path) -> None:
    """Or the option to run without one; loopback needs none."""
    home = tmp_path / "home"
    settings = Settings(home=home, host="0.0.0.0")  # noqa: S104
    with pytest.raises(InputError, match="no API key"):
        require_authentication(settings)
    assert not home.exists()
    elsewhere = tmp_path / "other.db"
    with pytest.raises(InputError, match="no API key"):
        require_authentication(
            settings.model_copy(update={"database_url": f"sqlite:///{elsewhere}"})
        )
    assert not elsewhere.exists()
    home.mkdir()
    registry = Registry(settings.resolved_database_url, settings.resolved_blob_url)
    registry.migrate()
    with registry.transaction() as tx:
        tx.api_keys.create("old", ["admin"], lifetime_seconds=1e-3)
        tx.api_keys.create("gone", ["admin"])
        tx.api_keys.revoke("gone")
    with pytest.raises(InputError, match="no API key"):
        require_authentication(settings)
    with registry.transaction() as tx:
        tx.api_keys.create("new", ["predict"])
    registry.close()
    assert require_authentication(settings).require_keys
    open_to_all = settings.model_copy(update={"insecure": True})
    assert not require_authentication(open_to_all).require_keys
    assert not require_authentication(Settings(home=home, host="localhost")).require_keys


def test_token_issuer_replaces_a_key(tmp_path: Path) -> None:
    """An audience is required; the issuer need not be reachable at start."""
    host = "0.0.0.0"  # noqa: S104
    issuer = {"home": tmp_path, "host": host, "oidc_issuer": "https://login.example.com"}
    assert require_authentication(Settings(**issuer, oidc_audience="recalib")).require_keys
    for wrong in ({}, {"oidc_audience": "recalib", "oidc_algorithms": "HS256"}):
        for where in (host, "127.0.0.1"):
            with pytest.raises(InputError, match="RECALIB_OIDC"):
                require_authentication(Settings(**{**issuer, **wrong, "host": where}))
