"""Models: names, classes, pages, and one winner when two create the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from recalib.errors import ConflictError, InputError, NotFoundError
from recalib.registry import Model, Registry


def test_created_model_is_read_back(registry: Registry) -> None:
    """`create` and `get` return the same record, labels as a tuple."""
    with registry.transaction() as tx:
        created = tx.models.create("cat-or-dog", ("cat", "dog"), 2, actor="anna")
    with registry.reading() as tx:
        assert tx.models.get("cat-or-dog") == created
    assert (created.labels, created.classes) == (("cat", "dog"), 2)
    assert (created.latest_version, created.created_by) == (0, "anna")


def test_unknown_model_is_not_found(registry: Registry) -> None:
    """The error carries the kind and the name."""
    with registry.reading() as tx, pytest.raises(NotFoundError) as excinfo:
        tx.models.get("nobody")
    assert (excinfo.value.kind, excinfo.value.name) == ("model", "nobody")


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "a/b", "a\\b", "-a", "a b", "a\n", "ä", "a" * 129, "a\x00"]
)
def test_names_that_could_be_paths_are_refused(registry: Registry, name: str) -> None:
    """Only letters, digits, '.', '_' and '-' make a name, and it begins with one of the first."""
    with registry.transaction() as tx, pytest.raises(InputError, match="name"):
        tx.models.create(name, None, 2, actor="anna")


@pytest.mark.parametrize(
    ("labels", "classes", "field"),
    [
        (None, 1, "classes"),
        (("a",), 2, "labels"),
        (("a", "a"), 2, "labels"),
        (("a", "b\nc"), 2, "labels[1]"),
        (("a\u202etxt", "b"), 2, "labels[0]"),
        (("a", "\x1b[31m"), 2, "labels[1]"),
    ],
)
def test_invalid_classes_and_labels_are_refused(
    registry: Registry, labels: tuple[str, ...] | None, classes: int, field: str
) -> None:
    """One class leaves nothing to calibrate; labels name each class once."""
    with registry.transaction() as tx, pytest.raises(InputError) as excinfo:
        tx.models.create("m", labels, classes, actor="anna")
    assert excinfo.value.field == field


def test_used_name_is_a_conflict_and_keeps_the_transaction(registry: Registry) -> None:
    """The failed insert takes nothing else of the transaction with it."""
    with registry.transaction() as tx:
        tx.models.create("m", None, 2, actor="anna")
        with pytest.raises(ConflictError, match="'m'"):
            tx.models.create("m", None, 3, actor="ben")
        tx.models.create("n", None, 4, actor="ben")
    with registry.reading() as tx:
        assert [model.classes for model in tx.models.page(None, 10)] == [2, 4]


def test_concurrent_creators_of_a_name_have_one_winner(registry: Registry) -> None:
    """The others get `ConflictError`, even if they read the name as free before."""

    def create(actor: int) -> Model | None:
        try:
            with registry.transaction() as tx:
                return tx.models.create("m", None, 2, actor=str(actor))
        except ConflictError:
            return None

    with ThreadPoolExecutor(8) as threads:
        created = [model for model in threads.map(create, range(8)) if model is not None]
    with registry.reading() as tx:
        assert [tx.models.get("m")] == created


def test_pages_are_in_byte_order(registry: Registry) -> None:
    """Capitals sort before small letters in both databases."""
    names = ["B", "a", "Z", "a.b", "a-b", "b", "0"]
    with registry.transaction() as tx:
        for name in names:
            tx.models.create(name, None, 2, actor="anna")
    with registry.reading() as tx:
        first = [model.name for model in tx.models.page(None, 4)]
        rest = [model.name for model in tx.models.page(first[-1], 4)]
    assert first + rest == sorted(names)
