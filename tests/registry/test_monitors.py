"""Monitors: the numbers of their tests."""

from __future__ import annotations

import pytest

from recalib.errors import ConflictError
from recalib.registry import MonitorRow, Registry
from tests.registry.interleaving import Interleaved
from tests.registry.scenes import a_model, a_version


def test_two_versions_do_not_share_the_number_of_a_test(registry: Registry) -> None:
    """Two workers begin tests of two versions at once; α is spent by number."""
    model = a_model(registry)
    rows = [
        MonitorRow(a_version(registry, model), 1, 1, {}, 0.0, {}, {}, {}, 0, 0.0) for _ in range(2)
    ]

    def save_second() -> None:
        with registry.transaction() as tx:
            tx.monitors.save(model, rows[1])

    other = Interleaved(registry, save_second)
    with registry.transaction() as tx:
        other.start_after_write(tx)
        tx.monitors.save(model, rows[0])
    with pytest.raises(ConflictError):
        other.finish()
    with registry.reading() as tx:
        assert [row.version for row in tx.monitors.all(model)] == [1]
