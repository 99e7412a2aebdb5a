"""`recalib keys`, in both databases."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recalib.core.access import new_secret
from recalib.registry import Registry
from tests.cli.running import Cli


def test_create_list_and_revoke(cli: Cli, database_url: str) -> None:
    at = ("--database-url", database_url)
    created = cli("keys", "create", "web", "--scope", "predict", "--scope", "label", *at)
    assert created.status == 0
    assert re.fullmatch(r"recalib_[A-Za-z0-9_-]{43}\n", created.out)
    assert "shown only now" in created.err
    more = cli(
        "keys", "create", "ci", "--scope", "fit", "--model", "b", "--model", "a",
        "--expires-days", "30", *at, "--json",
    )  # fmt: skip
    listed = cli("keys", "list", *at, "--json").json
    assert [entry["name"] for entry in listed] == ["web", "ci"]
    assert listed[0]["scopes"] == ["predict", "label"]
    assert (listed[0]["models"], listed[0]["expires_at"]) == (None, None)
    assert listed[1]["models"] == ["a", "b"]
    assert [entry["state"] for entry in listed] == ["active", "active"]
    assert listed[1]["expires_at"] - listed[1]["created_at"] == pytest.approx(30 * 86_400)
    # The secret is nowhere.
    text = str(listed) + cli("keys", "list", *at).out
    assert created.out.strip() not in text
    assert more.out.split('"key": "')[1][:20] not in text
    assert cli("keys", "revoke", "web", *at, "--json").json["state"] == "revoked"
    assert "is revoked" in cli("keys", "revoke", "web", *at).out
    assert "web: revoked" in cli("keys", "list", *at).out


@pytest.mark.sqlite_only
def test_secret_from_a_file(cli: Cli, database_url: str) -> None:
    """Deployments repeat this at every start; the secret is not printed."""
    at = ("--database-url", database_url)
    secret = new_secret()
    cli.write("key", f"{secret}\n".encode())
    create = ("keys", "create", "prometheus", "--scope", "metrics", *at, "--secret-file")
    for _ in range(2):
        result = cli(*create, "key")
        assert (result.status, result.out, result.err) == (0, "the key prometheus is good\n", "")
    assert cli(*create, "key", "--json").json == {"name": "prometheus"}
    listed = cli("keys", "list", *at, "--json").json
    assert [(entry["name"], entry["scopes"]) for entry in listed] == [("prometheus", ["metrics"])]
    registry = Registry(database_url, "memory://")
    with registry.reading() as tx:
        assert tx.api_keys.is_valid("prometheus", secret)
        assert not tx.api_keys.is_valid("prometheus", secret[:-1])
    registry.close()
    cli.write("other", new_secret().encode())
    cli.write("thought-up", b"correct horse battery staple")
    cli.write("binary", b"\xff")
    for name, message in {
        "other": "prometheus",
        "thought-up": "random bytes",
        "binary": "a file that holds",
        "none": "a file that holds",
    }.items():
        result = cli(*create, name)
        assert (result.status, result.out) == (2, "")
        assert message in result.err
        assert "horse" not in result.err
    # Nor does a key that was given up come back.
    assert cli("keys", "revoke", "prometheus", *at).status == 0
    assert cli(*create, "key").status == 2


@pytest.mark.sqlite_only
def test_create_with_limits(cli: Cli, tmp_path: Path) -> None:
    """Omitted limits use the server's settings; 0 means no limit."""
    at = ("--home", str(tmp_path))
    create = ("keys", "create", "--scope", "predict", *at)
    assert cli(*create, "plain").status == 0
    limits = ("--rate", "2.5", "--rows-rate", "0", "--concurrency", "3", "--max-body", "1000000")
    assert cli(*create, "web", *limits).status == 0
    listed = cli("keys", "list", *at, "--json").json
    assert set(listed[0]["limits"].values()) == {None}
    assert listed[1]["limits"] == {
        "requests_per_second": 2.5,
        "rows_per_second": 0,
        "concurrency": 3,
        "body_bytes": 1_000_000,
        "queued_jobs": None,
    }
    plain, web = cli("keys", "list", *at).out.splitlines()
    assert "all models; made" in plain
    text = "2.5 requests/s; any number of rows; 3 at once; 1000000 bytes at most; made"
    assert text in " ".join(web.split())


def test_change_limits(cli: Cli, database_url: str) -> None:
    """Omitted limits stay; `--reset` restores the server's settings. Changes are audited."""
    at = ("--database-url", database_url)
    limits = ("--rate", "2.5", "--concurrency", "3")
    assert cli("keys", "create", "web", "--scope", "predict", *limits, *at).status == 0
    changed = cli(
        "keys", "limit", "web", "--rate", "100", "--max-body", "0", "--queued-jobs", "50", *at
    )
    assert (
        changed.out
        == "the key web: 100 requests/s; 3 at once; bodies of any size; 50 jobs that wait\n"
    )
    listed = cli("keys", "list", *at, "--json").json
    assert listed[0]["limits"] == {
        "requests_per_second": 100,
        "rows_per_second": None,
        "concurrency": 3,
        "body_bytes": 0,
        "queued_jobs": 50,
    }
    only = cli("keys", "limit", "web", "--reset", "--rows-rate", "7", *at, "--json").json
    assert {name for name, value in only["limits"].items() if value is not None} == {
        "rows_per_second"
    }
    assert cli("keys", "limit", "web", "--reset", *at).out == "the key web: limits of the server\n"
    registry = Registry(database_url, "memory://")
    with registry.reading() as tx:
        messages = [entry.detail for entry in tx.audit.page(None, 9, action="limit_key")]
    registry.close()
    assert messages == [
        "server limits",
        "rows_per_second 7",
        "requests_per_second 100, concurrency 3, body_bytes 0, queued_jobs 50",
    ]
    assert cli("keys", "revoke", "web", *at).status == 0
    result = cli("keys", "limit", "web", "--rate", "1", *at)
    assert (result.status, "revoked" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("limit", "taken", "--rate", "-1"), "requests_per_second"),
        (("limit", "taken"), "--reset"),
        (("limit", "nobody", "--rate", "1"), "'nobody'"),
        (("create", "x", "--scope", "fit", "--rate", "-1"), "requests_per_second"),
        (("create", "x", "--scope", "fit", "--rows-rate", "nan"), "rows_per_second"),
        (("create", "x y", "--scope", "fit"), "name"),
        (("create", "x", "--scope", "root"), "scope"),
        (("create", "x", "--scope", "fit", "--model", "../m"), "model"),
        (("create", "x", "--scope", "fit", "--expires-days", "-1"), "expires"),
        (("create", "x", "--scope", "fit", "--expires-days", "0"), "expires"),
        (("create", "x", "--scope", "fit", "--expires-days", "nan"), "expires"),
        (("create", "taken", "--scope", "fit"), "'taken'"),
        (("revoke", "nobody"), "'nobody'"),
    ],
)
def test_invalid_input_is_one_line(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], named: str
) -> None:
    at = ("--home", str(tmp_path))
    assert cli("keys", "create", "taken", "--scope", "admin", *at).status == 0
    result = cli("keys", *arguments, *at)
    assert result.status == 2
    assert named in result.err
    assert len(result.err.strip().splitlines()) == 1
