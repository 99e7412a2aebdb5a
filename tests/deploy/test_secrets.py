"""The secrets of docker-compose.yml: created once, complete, and readable by each program."""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import ssl
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from sqlalchemy import make_url

from recalib.core.access import check_secret
from tests.deploy.backups import age, age_program
from tests.deploy.composed import ROOT, SERVICES, mounts

_PROGRAM = ROOT / "deploy" / "compose" / "make_secrets.py"
_STORE_SETTINGS = ROOT / "deploy" / "compose" / "seaweedfs.toml"
#: Files derived from other secrets.
_DERIVED = ("recalib/database-url", "s3/config.json")


@pytest.fixture(scope="module")
def make() -> Any:
    age_program()
    main = runpy.run_path(str(_PROGRAM))["main"]
    return lambda root: main(root, os.getgid())


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_secrets_are_created_once(make: Any, tmp_path: Path) -> None:
    """A missing derived file is created again; nothing else changes."""
    make(tmp_path)
    before = contents(tmp_path)
    make(tmp_path)
    assert contents(tmp_path) == before
    for name in _DERIVED:
        (tmp_path / name).unlink()
    # The state after an interrupted start.
    (tmp_path / "postgres" / ".password.new").write_text("half")
    make(tmp_path)
    (tmp_path / "postgres" / ".password.new").unlink()
    assert contents(tmp_path) == before


def test_secrets_are_unique(make: Any, tmp_path: Path) -> None:
    """Within a system and between two systems; all are long random values."""
    make(tmp_path / "one")
    make(tmp_path / "other")
    secrets = [
        text.strip()
        for folder in ("one", "other")
        for name, text in contents(tmp_path / folder).items()
        if name not in _DERIVED and not name.endswith(".crt")
    ]
    assert len(set(secrets)) == len(secrets) == 14
    assert min(map(len, secrets)) >= 43


def test_programs_read_the_created_secrets(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 clients, database clients, the store and the server."""
    make(tmp_path)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "recalib/s3-credentials"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    client = botocore.session.Session().get_credentials()
    (identity,) = json.loads((tmp_path / "s3/config.json").read_text())["identities"]
    assert identity["credentials"] == [
        {"accessKey": client.access_key, "secretKey": client.secret_key}
    ]
    url = make_url((tmp_path / "recalib/database-url").read_text().strip())
    assert url.password == (tmp_path / "postgres/password").read_text().strip()
    environment = SERVICES["postgres"]["environment"]
    assert (url.username, url.database) == (
        environment["POSTGRES_USER"],
        environment["POSTGRES_DB"],
    )
    assert url.host in SERVICES
    assert url.query["sslmode"] == "verify-full"
    assert url.query["sslrootcert"] == "/secrets/postgres-ca.crt"
    assert age("--encrypt", "--identity", tmp_path / "backup/key", os.devnull).returncode == 0
    check_secret((tmp_path / "prometheus/recalib-key").read_text().strip())


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str | None:
    """Return the version of TLS that a client agrees on with a server at this name."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].version()


@pytest.mark.parametrize(
    ("authority", "name", "host"),
    [
        ("recalib/postgres-ca.crt", "postgres/server", "postgres"),
        ("s3/grpc-ca.crt", "s3/grpc", "s3"),
    ],
)
def test_certificates_verify_their_host_only(
    make: Any, tmp_path: Path, authority: str, name: str, host: str
) -> None:
    """As `sslmode=verify-full` does; the key of the authority is not stored."""
    make(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
    client = ssl.create_default_context(cafile=tmp_path / authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert _handshake(server, client, host) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(server, client, "other")
    with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get"):
        _handshake(server, ssl.create_default_context(), host)
    assert len(list(tmp_path.rglob("*.key"))) == 2


def test_private_key_of_the_database_is_for_its_group(make: Any, tmp_path: Path) -> None:
    """PostgreSQL refuses a key that others can read; all other files are read by any user."""
    make(tmp_path)
    key = tmp_path / "postgres" / "server.key"
    modes = {path: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert modes.pop(key) == 0o440
    assert key.stat().st_gid == os.getgid()
    assert set(modes.values()) == {0o444}


def test_every_secret_file_of_a_service_is_created(make: Any, tmp_path: Path) -> None:
    """It is in the volume that the service mounts."""
    make(tmp_path)
    places = {source: target for source, target, _ in mounts("secrets")}
    count = 0
    for name, service in SERVICES.items():
        if name == "secrets":
            continue
        words = [*service.get("environment", {}).values(), *service.get("command", [])]
        if name == "s3":
            words += re.findall(r'"(/secrets/[^"]+)"', _STORE_SETTINGS.read_text())
        for source, target, _ in mounts(name):
            if source not in places:
                continue
            folder = tmp_path / Path(places[source]).relative_to("/secrets")
            files = [str(word).rpartition("=")[2] for word in words]
            for file in (file for file in files if file.startswith(f"{target}/")):
                assert (folder / Path(file).relative_to(target)).is_file(), (name, file)
                count += 1
    assert count >= 19
