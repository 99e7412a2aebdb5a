"""Idempotency keys: one answer a key and scope, kept for a while."""

from __future__ import annotations

import pytest

from recalib.errors import ConflictError
from recalib.registry import Registry


def test_stored_answer_is_returned_in_its_scope(registry: Registry) -> None:
    """Another scope has separate keys."""
    with registry.transaction() as tx:
        tx.idempotency.store("key", "anna POST /models", "abc", 201, b'{"a": 1}')
    with registry.reading() as tx:
        stored = tx.idempotency.find("key", "anna POST /models")
        assert tx.idempotency.find("key", "ben POST /models") is None
    assert stored is not None
    assert (stored.fingerprint, stored.status, stored.body) == ("abc", 201, b'{"a": 1}')


def test_only_one_of_two_requests_with_a_key_commits(registry: Registry) -> None:
    """The later one's work rolls back with its answer."""

    def request(name: str) -> None:
        with registry.transaction() as tx:
            tx.models.create(name, None, 2, actor="anna")
            tx.idempotency.store("key", "scope", "abc", 201, b"")

    request("first")
    with pytest.raises(ConflictError):
        request("second")
    with registry.reading() as tx:
        assert [model.name for model in tx.models.page(None, 10)] == ["first"]


def test_only_old_answers_are_purged(registry: Registry) -> None:
    """Age is by the database's clock."""
    with registry.transaction() as tx:
        tx.idempotency.store("key", "scope", "abc", 201, b"")
    with registry.transaction() as tx:
        assert tx.idempotency.purge(older_than_seconds=3600) == 0
        assert tx.idempotency.purge(older_than_seconds=-3600) == 1
        assert tx.idempotency.find("key", "scope") is None
