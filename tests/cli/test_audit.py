"""`recalib audit`: entries of key operations."""

from __future__ import annotations

import getpass
from pathlib import Path

from tests.cli.running import Cli


def test_key_operations_are_in_the_audit_trail(cli: Cli, tmp_path: Path) -> None:
    at = ("--home", str(tmp_path))
    made = cli("keys", "create", "web", "--scope", "predict", "--model", "m", *at)
    assert cli("keys", "revoke", "web", *at).status == 0
    assert cli("rotate-key", "--revoke", *at).status == 0
    found = cli("audit", *at, "--json").json
    assert [(one["action"], one["target"]) for one in found] == [
        ("rotate_key", "key 1"),
        ("revoke_key", "web"),
        ("create_key", "web"),
    ]
    assert {one["actor"] for one in found} == {f"cli:{getpass.getuser()}"}
    said = cli("audit", *at, "--action", "create_key").out
    assert said.endswith("create_key  web: predict; m\n")
    assert made.out.strip() not in str(found)
    assert cli("audit", *at, "--actor", "nobody").out == ""
