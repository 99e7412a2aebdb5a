"""`recalib rotate-key`: a new signing key, in both databases."""

from __future__ import annotations

from pathlib import Path

from recalib.registry import Registry
from tests.cli.running import Cli


def test_rotated_key_signs(cli: Cli, database_url: str) -> None:
    """The old key stays until it is revoked."""

    def keys() -> list[int]:
        registry = Registry(database_url, "memory://")
        with registry.reading() as tx:
            result = sorted(tx.signing_keys.all())
        registry.close()
        return result

    options = ("rotate-key", "--database-url", database_url)
    assert cli(*options, "--json").json == {"key": 1, "revoked": 0}
    assert cli(*options, "--json").json == {"key": 2, "revoked": 0}
    assert keys() == [1, 2]
    assert cli(*options, "--revoke", "--json").json == {"key": 3, "revoked": 2}
    assert keys() == [3]
    assert "key 4 signs" in cli(*options).out
    assert keys() == [3, 4]
    assert "the 2 before it are refused" in cli(*options, "--revoke").out
    assert keys() == [5]


def test_unmigrated_database_is_rejected(cli: Cli, tmp_path: Path) -> None:
    """One line, and no traceback."""
    result = cli("rotate-key", "--database-url", f"sqlite:///{tmp_path}/none.db")
    assert result.status == 2
    assert "signing_keys" in result.err
