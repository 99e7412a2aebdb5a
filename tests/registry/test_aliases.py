"""Aliases: changed atomically, recorded, and visible to servers that poll the revision."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from recalib.errors import InputError, NotFoundError
from recalib.registry import Registry
from tests.registry.interleaving import wait_for_lock
from tests.registry.scenes import a_model, a_version


def test_alias_has_a_version_and_an_actor(registry: Registry) -> None:
    """`set`, `get`, `all` and `page` agree."""
    model = a_model(registry)
    a_version(registry, model)
    with registry.transaction() as tx:
        alias = tx.aliases.set(model, "champion", 1, "anna", "the first")
    with registry.reading() as tx:
        assert tx.aliases.get(model, "champion") == tx.aliases.find(model, "champion") == alias
        assert tx.aliases.all(model) == tx.aliases.page(model, None, 9) == [alias]
        assert tx.aliases.page(model, "champion", 9) == []
    assert (alias.version, alias.actor, alias.reason) == (1, "anna", "the first")


def test_every_change_is_in_the_history(registry: Registry) -> None:
    """Newest first, from where to where; a roll back is a move like any other."""
    model = a_model(registry)
    for _ in range(2):
        a_version(registry, model, promote="champion")
    with registry.transaction() as tx:
        tx.aliases.set(model, "champion", 1, "ben", "rolled back")
    with registry.reading() as tx:
        history = tx.aliases.history(model, "champion")
        older = tx.aliases.history(model, "champion", limit=1, after=history[0].revision)
    moves = [(move.from_version, move.to_version, move.reason) for move in history]
    assert moves == [(2, 1, "rolled back"), (1, 2, "better"), (None, 1, "better")]
    assert history[0].actor == "ben"
    assert history[1].actor.startswith("job:")
    assert older == [history[1]]


def test_rolled_back_change_leaves_no_trace(registry: Registry) -> None:
    """Alias, history and revision change together or not at all."""
    model = a_model(registry)
    a_version(registry, model, promote="champion")
    a_version(registry, model)
    with suppress(RuntimeError), registry.transaction() as tx:
        tx.aliases.set(model, "champion", 2, "anna", "")
        raise RuntimeError
    with registry.reading() as tx:
        assert tx.aliases.get(model, "champion").version == 1
        assert len(tx.aliases.history(model, "champion")) == tx.aliases.revision() == 1


def test_setting_the_same_version_changes_nothing(registry: Registry) -> None:
    """A repeated request makes no entry and wakes no server."""
    model = a_model(registry)
    a_version(registry, model, promote="champion")
    with registry.transaction() as tx:
        before = tx.aliases.get(model, "champion")
        assert tx.aliases.set(model, "champion", 1, "anna", "again") == before
        assert tx.aliases.revision() == 1


def test_alias_points_to_versions_of_its_model(registry: Registry) -> None:
    """Neither at a number not yet published, nor at another model's."""
    model, other = a_model(registry), a_model(registry, "vit")
    a_version(registry, other)
    with registry.transaction() as tx, pytest.raises(NotFoundError, match="resnet"):
        tx.aliases.set(model, "champion", 1, "anna", "")


@pytest.mark.parametrize("alias", ["7", "", "a/b"])
def test_alias_cannot_look_like_a_version(registry: Registry, alias: str) -> None:
    """Requests may name either in the same place."""
    model = a_model(registry)
    a_version(registry, model)
    with registry.transaction() as tx, pytest.raises(InputError, match="alias"):
        tx.aliases.set(model, alias, 1, "anna", "")


def test_revisions_become_visible_in_order(registry: Registry) -> None:
    """A poller that has seen a revision has seen every smaller one.

    Two models are promoted at once. The second may not finish before the first has, or a poller
    would go on from its higher number and never look for the lower.
    """
    models = [a_model(registry, name) for name in ("first", "second")]
    for model in models:
        a_version(registry, model)
    revisions: list[int] = []

    def second() -> None:
        with registry.transaction() as tx:
            revisions.append(tx.aliases.set(models[1], "champion", 1, "ben", "").revision)

    thread = threading.Thread(target=second)
    with registry.transaction() as tx:
        first = tx.aliases.set(models[0], "champion", 1, "anna", "").revision
        thread.start()
        wait_for_lock(registry, thread)
        with registry.reading() as other:
            assert other.aliases.revision() == 0
    thread.join(30)
    assert (first, revisions) == (1, [2])
