"""`recalib doctor`: each failure, in both databases."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from recalib.registry import Registry
from recalib.registry.engine import remote_tls_mode
from tests.cli.running import Cli
from tests.registry.scenes import damage_table
from tests.service.issuers import Issuer, issuer, signing_keys
from tests.training.watched import a_champion
from training.monitoring_job import watch

__all__ = ["issuer", "signing_keys"]


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


@pytest.fixture
def doctor(cli: Cli, database_url: str, blobs: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the exit status, and the state and detail of each check."""
    monkeypatch.setenv("RECALIB_BLOB_URL", blobs.as_uri())

    def run() -> tuple[int, dict[str, tuple[str, str]]]:
        result = cli("doctor", "--database-url", database_url, "--json")
        assert result.err == ""
        checks = {
            entry["check"]: (entry["state"], entry["detail"]) for entry in json.loads(result.out)
        }
        people = cli("doctor", "--database-url", database_url)
        names = [line[len("warning  ") :].partition(":")[0] for line in people.out.splitlines()]
        assert names == list(checks)
        assert people.status == result.status
        return result.status, checks

    return run


@pytest.mark.sqlite_only
def test_malformed_database_is_named(doctor: Any, registry: Registry, tmp_path: Path) -> None:
    registry.close()
    damage_table(tmp_path / "recalib.db", "webhooks")
    status, checks = doctor()
    assert (status, checks["database"][0]) == (1, "failed")
    assert "is malformed" in checks["database"][1]


def test_healthy_deployment(doctor: Any, registry: Registry) -> None:
    status, checks = doctor()
    assert status == 0
    assert list(checks) == [
        "settings", "tls", "database tls", "gpu", "pictures", "database", "clock", "schema",
        "signing key", "api keys", "jobs", "monitoring", "blobs",
    ]  # fmt: skip
    assert {state for state, _ in checks.values()} <= {"ok", "warning"}
    assert checks["pictures"] == ("ok", "altair and vl_convert are installed")
    assert checks["schema"][0] == checks["clock"][0] == checks["jobs"][0] == "ok"
    assert checks["signing key"] == ("ok", "none yet; the first server makes it")
    assert "(command line)" in checks["settings"][1]


@pytest.mark.sqlite_only
def test_missing_and_expiring_keys_are_reported(
    doctor: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALIB_HOST", "0.0.0.0")  # noqa: S104
    status, checks = doctor()
    assert (status, checks["api keys"][0], checks["tls"][0]) == (1, "failed", "warning")
    with registry.transaction() as tx:
        tx.api_keys.create("soon", ["fit"], lifetime_seconds=3600)
    status, checks = doctor()
    assert status == 0
    assert checks["api keys"] == ("warning", "expire within a week: soon")
    with registry.transaction() as tx:
        tx.api_keys.revoke("soon")
    monkeypatch.setenv("RECALIB_INSECURE", "true")
    assert doctor()[1]["api keys"][0] == "warning"


@pytest.mark.sqlite_only
def test_issuer_is_checked(
    doctor: Any, registry: Registry, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALIB_HOST", "0.0.0.0")  # noqa: S104
    monkeypatch.setenv("RECALIB_OIDC_ISSUER", issuer.url)
    status, checks = doctor()
    assert (status, checks["oidc"][0]) == (1, "failed")
    assert "RECALIB_OIDC_AUDIENCE" in checks["oidc"][1]
    monkeypatch.setenv("RECALIB_OIDC_AUDIENCE", "recalib")
    status, checks = doctor()
    assert status == 0
    assert checks["oidc"] == ("ok", f"{issuer.url} has 2 keys, for 'recalib'")
    assert checks["api keys"] == ("ok", "none; requests need a token of the issuer")
    monkeypatch.setenv("RECALIB_OIDC_CLIENT_ID", "console")
    assert doctor()[1]["oidc"][1].endswith("; people sign in as 'console'")
    issuer.stop()
    status, checks = doctor()
    assert (status, checks["oidc"][0]) == (1, "failed")
    assert "does not return its keys" in checks["oidc"][1]


def test_waiting_failed_and_orphaned_jobs_are_reported(doctor: Any, registry: Registry) -> None:
    with registry.transaction() as tx:
        tx.jobs.enqueue("fit", {})
        lease = tx.jobs.claim("w", ["fit"], 0.0)
        assert lease is not None
    status, checks = doctor()
    assert (status, checks["jobs"][0]) == (0, "warning")
    assert "1 held by workers that are gone" in checks["jobs"][1]
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE jobs SET state = 'failed', finished_at = created_at"))
    assert "1 failed in a day" in doctor()[1]["jobs"][1]
    with registry.transaction() as tx:
        tx.jobs.enqueue("fit", {}, run_after_seconds=-120)
    assert "is a worker up?" in doctor()[1]["jobs"][1]


def test_unassessed_champions_are_reported(doctor: Any, registry: Registry) -> None:
    """The check reports the longest-waiting model, by the database clock."""
    assert doctor()[1]["monitoring"] == ("ok", "no model has a champion to monitor")
    model = a_champion(registry)
    state, detail = doctor()[1]["monitoring"]
    assert (state, detail.partition(" not")[0]) == ("ok", "champions: 1; resnet")
    with registry.transaction() as tx:  # and no assessment was ever recorded
        tx.connection.execute(text("UPDATE alias_changes SET changed_at = changed_at - 3600"))
    assert doctor()[1]["monitoring"][0] == "warning"
    watch(registry, model)
    assert doctor()[1]["monitoring"][0] == "ok"
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE monitors SET assessed_at = assessed_at - 3600"))
    state, detail = doctor()[1]["monitoring"]
    assert state == "warning"
    assert "is a worker up, or busy?" in detail


def test_schema_of_a_later_version_fails(doctor: Any, registry: Registry) -> None:
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    status, checks = doctor()
    assert status == 1
    assert checks["schema"][0] == "failed"
    assert "belongs to a later version" in checks["schema"][1]
    assert "jobs" not in checks
    assert checks["blobs"][0] == "ok"
    with registry.transaction() as tx:
        tx.connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    status, checks = doctor()
    assert (status, checks["schema"][0]) == (1, "failed")
    assert "only development versions" in checks["schema"][1]


@pytest.mark.sqlite_only
def test_missing_package_of_pictures_is_named(
    doctor: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    _, checks = doctor()
    text = "no package altair: reports need pip install 'recalib[pictures]'"
    assert checks["pictures"] == ("warning", text)


@pytest.mark.sqlite_only
def test_clock_skew_and_incomplete_tls_fail(
    doctor: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() - 3600)
    monkeypatch.setenv("RECALIB_TLS_CERTIFICATE", "certificate.pem")
    status, checks = doctor()
    assert (status, checks["clock"][0], checks["tls"][0]) == (1, "failed", "failed")
    assert re.search(r" is \+(3600|3599)\.", checks["clock"][1])
    assert "certificate.pem" in checks["tls"][1]
    assert "torch" in checks["gpu"][1]


@pytest.mark.sqlite_only
def test_public_address_needs_tls_here_or_at_a_trusted_proxy(
    doctor: Any, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECALIB_HOST", "0.0.0.0")  # noqa: S104
    found = []
    for proxies in ("", "10.0.0.0/8 ::1", "10.0.0.1/8"):
        monkeypatch.setenv("RECALIB_TRUSTED_PROXIES", proxies)
        found.append(doctor()[1]["tls"])
    assert [state for state, _ in found] == ["warning", "ok", "failed"]
    assert "unencrypted" in found[0][1]
    assert found[2][1].startswith("RECALIB_TRUSTED_PROXIES: ")


@pytest.mark.sqlite_only
def test_unwritable_blob_store_fails(doctor: Any, registry: Registry, blobs: Path) -> None:
    blobs.write_text("a file where a folder should be")
    status, checks = doctor()
    assert (status, checks["blobs"][0]) == (1, "failed")
    assert str(blobs) in checks["blobs"][1]


@pytest.mark.parametrize(
    ("query", "state", "text"),
    [
        ("", "warning", "sslmode=prefer permits a connection without encryption"),
        ("?sslmode=disable", "warning", "add sslmode=verify-full&sslrootcert=FILE"),
        ("?sslmode=require", "ok", "does not verify the host: add sslmode=verify-full"),
        ("?sslmode=verify-full&sslrootcert=ca.crt", "ok", "sslmode=verify-full"),
    ],
)
def test_unencrypted_remote_database_is_reported(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, query: str, state: str, text: str
) -> None:
    """The password of the URL is not repeated."""
    monkeypatch.delenv("PGSSLMODE", raising=False)
    url = f"postgresql://u:hidden-password@db.invalid/recalib{query}"
    result = cli("doctor", "--database-url", url, "--json")
    checks = {entry["check"]: entry for entry in json.loads(result.out)}
    assert checks["database tls"]["state"] == state
    assert text in checks["database tls"]["detail"]
    assert checks["database"]["state"] == "failed"
    assert "hidden-password" not in result.out + result.err


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("sqlite:////tmp/recalib.db", None),
        ("postgresql://u@localhost/x", None),
        ("postgresql://u@127.0.0.1:5433/x", None),
        ("postgresql://u@[::1]/x", None),
        ("postgresql://u@/x", None),
        ("postgresql://u@/x?host=/run/postgresql", None),
        ("postgresql://u@db/x", "prefer"),
        ("postgres://u@db/x?sslmode=require", "require"),
        ("postgresql://u@/x?host=db:5432", "prefer"),
        ("postgresql://u@localhost/x?host=db&sslmode=allow", "allow"),
        ("postgresql://u@/x?host=127.0.0.1&host=db", "prefer"),
    ],
)
def test_tls_mode_of_a_remote_database(
    monkeypatch: pytest.MonkeyPatch, url: str, mode: str | None
) -> None:
    for name in ("PGHOST", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    assert remote_tls_mode(url) == mode


def test_tls_mode_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As libpq does."""
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert remote_tls_mode("postgresql://u@db/x") == "verify-full"
    assert remote_tls_mode("postgresql://u@db/x?sslmode=disable") == "disable"
    monkeypatch.setenv("PGHOST", "db")
    assert remote_tls_mode("postgresql://u@/x") == "verify-full"


def test_doctor_creates_nothing(cli: Cli, tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = cli("doctor", "--home", str(home))
    assert result.status == 0
    assert "recalib serve makes it" in result.out
    assert not home.exists()


def test_unreachable_database_fails(cli: Cli) -> None:
    result = cli("doctor", "--database-url", "postgresql://nobody@127.0.0.1:1/none")
    assert result.status == 1
    assert "FAILED   database: " in result.out
