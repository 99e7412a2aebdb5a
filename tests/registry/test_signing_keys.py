"""Signing keys: one for all processes, replaced without making the ids that are out worthless."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import text

from recalib.registry import Registry

_DAY = 86_400.0


def _age(registry: Registry, days: float) -> None:
    with registry.transaction() as tx:
        tx.connection.execute(
            text("UPDATE signing_keys SET created_at = created_at - :by"), {"by": days * _DAY}
        )


def test_first_use_creates_the_key(registry: Registry) -> None:
    """32 random bytes, which nothing shows that shows a key."""
    with registry.reading() as tx:
        assert tx.signing_keys.newest() is None
    with registry.transaction() as tx:
        key = tx.signing_keys.first()
    with registry.transaction() as tx:
        assert tx.signing_keys.first() == key == tx.signing_keys.newest()
        assert tx.signing_keys.all() == {1: key}
    assert len(key.secret) == 32
    assert str(key.secret) not in repr(key)


def test_rotation_keeps_the_old_key_until_its_ids_expire(registry: Registry) -> None:
    """A month after it was replaced, not after it was made, with a day for the unexpected."""
    with registry.transaction() as tx:
        first = tx.signing_keys.first()
    _age(registry, 100)
    with registry.transaction() as tx:
        second = tx.signing_keys.rotate()
        assert tx.signing_keys.purge(30 * _DAY) == 0
        assert tx.signing_keys.newest() == second
        assert tx.signing_keys.all() == {1: first, 2: second}
    assert first.secret != second.secret
    _age(registry, 30.5)
    with registry.transaction() as tx:
        assert tx.signing_keys.purge(30 * _DAY) == 0
    _age(registry, 1)
    with registry.transaction() as tx:
        assert tx.signing_keys.purge(30 * _DAY) == 1
        assert tx.signing_keys.all() == {2: second}
        # The signing key stays, however old it is.
        assert tx.signing_keys.purge(0) == 0


def test_newest_key_is_not_revoked(registry: Registry) -> None:
    """And numbers are not used again."""
    with registry.transaction() as tx:
        assert tx.signing_keys.revoke() == 0
        for _ in range(3):
            newest = tx.signing_keys.rotate()
        assert tx.signing_keys.revoke() == 2
        assert tx.signing_keys.all() == {3: newest}
        assert tx.signing_keys.rotate().number == 4


@pytest.mark.slow
def test_concurrent_processes_share_a_key(database_url: str) -> None:
    """The first process creates the key, and all sign with it."""
    command = (
        "import sys; from recalib.registry import Registry\n"
        "registry = Registry(sys.argv[1], 'memory://')\n"
        "with registry.transaction() as tx:\n"
        "    print(tx.signing_keys.first().secret.hex())\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", command, database_url], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    secrets = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert len(set(secrets)) == 1
    assert len(secrets[0]) == 65
