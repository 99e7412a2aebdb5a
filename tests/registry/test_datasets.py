"""Data sets: their fields are returned, and a name is unique in a model."""

from __future__ import annotations

import pytest

from recalib.errors import ConflictError, InputError, NotFoundError
from recalib.registry import Registry
from tests.registry.scenes import a_model

_SIZES = ("0" * 64, 5_000_000_000, 2, 6_000_000_000_000, "text/csv")


def test_created_dataset_is_read_back(registry: Registry) -> None:
    """Sizes may exceed 32 bits, metrics are any JSON."""
    model = a_model(registry)
    metrics = {"ece": {"value": 0.1, "low": None}}
    with registry.transaction() as tx:
        created = tx.datasets.create(model, "big", *_SIZES, "probabilities", metrics)
    with registry.reading() as tx:
        assert tx.datasets.get(model, "big") == tx.datasets.find(model, "big") == created
    assert (created.model, created.rows, created.size_bytes) == ("resnet", _SIZES[1], _SIZES[3])
    assert (created.input, created.metrics) == ("probabilities", metrics)


def test_names_are_unique_within_a_model(registry: Registry) -> None:
    """Two models may each have a dataset of a name, one model not two."""
    model = a_model(registry)
    a_model(registry, "vit")  # has one of that name as well
    with registry.transaction() as tx, pytest.raises(ConflictError, match="'validation'"):
        tx.datasets.create(model, "validation", *_SIZES, "logits", {})


def test_unknown_dataset_is_not_found(registry: Registry) -> None:
    """`get` raises and names the model, `find` returns None."""
    model = a_model(registry)
    with registry.reading() as tx:
        assert tx.datasets.find(model, "test") is None
        with pytest.raises(NotFoundError, match="resnet"):
            tx.datasets.get(model, "test")


def test_input_must_be_logits_or_probabilities(registry: Registry) -> None:
    """The caller states what the numbers are; it is never guessed."""
    model = a_model(registry)
    with registry.transaction() as tx, pytest.raises(InputError, match="input"):
        tx.datasets.create(model, "d", *_SIZES, "scores", {})  # type: ignore[arg-type]


def test_pages_are_in_order(registry: Registry) -> None:
    """The cursor is the last name of the page before."""
    model = a_model(registry)
    with registry.transaction() as tx:
        for name in ("a", "b", "c"):
            tx.datasets.create(model, name, *_SIZES, "logits", {})
    with registry.reading() as tx:
        assert [dataset.name for dataset in tx.datasets.page(model, None, 2)] == ["a", "b"]
        assert [dataset.name for dataset in tx.datasets.page(model, "b", 2)] == ["c", "validation"]
