"""`recalib audit`: entries of key operations."""

from __future__ import annotations

import getpass
from pathlib import Path

from tests.cli.running import Cli


def test_key_operations_are_in_the_audit_trail(cli: Cli, tmp_path: Path) -> None:
    at = ("--home", str(tmp_path))
    created = cli("keys", "create", "web", "--scope", "predict", "--model", "m", *at)
    assert cli("keys", "revoke", "web", *at).status == 0
    assert cli("rotate-key", "--revoke", *at).status == 0
    output = cli("audit", *at, "--json").json
    assert [(entry["action"], entry["target"]) for entry in output] == [
        ("rotate_key", "key 1"),
        ("revoke_key", "web"),
        ("create_key", "web"),
    ]
    assert {entry["actor"] for entry in output} == {f"cli:{getpass.getuser()}"}
    text = cli("audit", *at, "--action", "create_key").out
    assert text.endswith("create_key  web: predict; m\n")
    assert created.out.strip() not in str(output)
    assert cli("audit", *at, "--actor", "nobody").out == ""
