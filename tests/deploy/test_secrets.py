"""The secrets of docker-compose.yml: created once, complete, and readable by each program."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from sqlalchemy import make_url

from recalib.access import check_secret
from tests.deploy.composed import ROOT, SERVICES, mounts

_PROGRAM = ROOT / "deploy" / "compose" / "make_secrets.py"
#: Files derived from other secrets.
_DERIVED = ("recalib/database-url", "s3/config.json")


@pytest.fixture(scope="module")
def make() -> Any:
    return runpy.run_path(str(_PROGRAM))["main"]


def found(root: Path) -> dict[str, str]:
    return {str(one.relative_to(root)): one.read_text() for one in root.rglob("*") if one.is_file()}


def test_secrets_are_created_once(make: Any, tmp_path: Path) -> None:
    """A missing derived file is created again; nothing else changes."""
    make(tmp_path)
    made = found(tmp_path)
    make(tmp_path)
    assert found(tmp_path) == made
    for name in _DERIVED:
        (tmp_path / name).unlink()
    # The state after an interrupted start.
    (tmp_path / "postgres" / ".password.new").write_text("half")
    make(tmp_path)
    (tmp_path / "postgres" / ".password.new").unlink()
    assert found(tmp_path) == made


def test_secrets_are_unique(make: Any, tmp_path: Path) -> None:
    """Within a system and between two systems; all are long random values."""
    make(tmp_path / "one")
    make(tmp_path / "other")
    secrets = [
        text.strip()
        for folder in ("one", "other")
        for name, text in found(tmp_path / folder).items()
        if name not in _DERIVED
    ]
    assert len(set(secrets)) == len(secrets) == 8
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
    check_secret((tmp_path / "prometheus/recalib-key").read_text().strip())


def test_every_secret_file_of_a_service_is_created(make: Any, tmp_path: Path) -> None:
    """It is in the volume that the service mounts."""
    make(tmp_path)
    places = {source: target for source, target, _ in mounts("secrets")}
    named = 0
    for name, service in SERVICES.items():
        if name == "secrets":
            continue
        words = [*service.get("environment", {}).values(), *service.get("command", [])]
        for source, target, _ in mounts(name):
            if source not in places:
                continue
            folder = tmp_path / Path(places[source]).relative_to("/secrets")
            files = [str(word).rpartition("=")[2] for word in words]
            for file in (one for one in files if one.startswith(f"{target}/")):
                assert (folder / Path(file).relative_to(target)).is_file(), (name, file)
                named += 1
    assert named >= 10
