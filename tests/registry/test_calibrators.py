"""Publishing: gapless versions, once a job, together with the job's end or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from recalib.errors import ConflictError, FencedError, NotFoundError
from recalib.registry import Registry
from tests.registry.scenes import a_lease, a_model, a_version, claimed

_CONTENT = ("validation", {"map": "beta"}, b"\x00numbers\xff")


def test_published_version_is_read_back(registry: Registry) -> None:
    """The card, the bytes, and what it came from."""
    model, lease = a_model(registry), a_lease(registry)
    with registry.transaction() as tx:
        version = tx.calibrators.publish(lease, model, *_CONTENT, None, "")
    with registry.reading() as tx:
        calibrator = tx.calibrators.get(model, version)
        assert tx.calibrators.parameters(model, version) == _CONTENT[2]
        assert tx.calibrators.latest(model) == calibrator
    assert (calibrator.model, calibrator.version, calibrator.card) == ("resnet", 1, {"map": "beta"})
    assert (calibrator.dataset, calibrator.job_id) == ("validation", lease.job.id)


def test_unknown_versions_are_not_found(registry: Registry) -> None:
    """So are the parameters of one; the latest of none is None."""
    model = a_model(registry)
    with registry.reading() as tx:
        assert tx.calibrators.latest(model) is None
        for ask in (tx.calibrators.get, tx.calibrators.parameters):
            with pytest.raises(NotFoundError, match="resnet"):
                ask(model, 1)


def test_pages_are_in_order_of_version(registry: Registry) -> None:
    """The cursor is the last version of the page before."""
    model = a_model(registry)
    for _ in range(3):
        a_version(registry, model)
    with registry.reading() as tx:
        assert [calibrator.version for calibrator in tx.calibrators.page(model, None, 2)] == [1, 2]
        assert [calibrator.version for calibrator in tx.calibrators.page(model, 2, 2)] == [3]


def test_concurrent_publishers_number_versions_without_gaps(registry: Registry) -> None:
    """Also when every third of them fails after it got its number."""
    model = a_model(registry)
    with registry.transaction() as tx:
        for _ in range(24):
            tx.jobs.enqueue("fit", {})

    def publish(index: int) -> int | None:
        lease = claimed(registry)
        try:
            with registry.transaction() as tx:
                version = tx.calibrators.publish(lease, model, *_CONTENT, "champion", "")
                tx.jobs.succeed(lease, {})
                if index % 3 == 0:
                    raise RuntimeError("the power went out")
        except RuntimeError:
            return None
        return version

    with ThreadPoolExecutor(4) as threads:
        versions = [version for version in threads.map(publish, range(24)) if version is not None]
    assert sorted(versions) == list(range(1, 17))
    with registry.reading() as tx:
        assert tx.models.get("resnet").latest_version == 16
        history = tx.aliases.history(model, "champion")
        assert tx.aliases.revision() == 16
    # Each change starts where the one before it ended: no two of them saw the same champion.
    assert [change.from_version for change in history[:-1]] == [
        change.to_version for change in history[1:]
    ]


def test_fenced_worker_publishes_nothing(registry: Registry) -> None:
    """No version, no number used up, no alias moved."""
    model, paused = a_model(registry), a_lease(registry, lease_seconds=-1)
    claimed(registry, "the next")
    with pytest.raises(FencedError), registry.transaction() as tx:
        tx.calibrators.publish(paused, model, *_CONTENT, "champion", "")
    with registry.reading() as tx:
        assert tx.calibrators.latest(model) is None
        assert tx.aliases.find(model, "champion") is None
    assert a_version(registry, model) == 1


def test_late_worker_publishes_unless_it_was_replaced(registry: Registry) -> None:
    """An expired but unclaimed lease is valid; it cannot be claimed during the publishing."""
    model, late = a_model(registry), a_lease(registry, lease_seconds=-1)
    with registry.transaction() as tx:
        assert tx.calibrators.publish(late, model, *_CONTENT, None, "") == 1
        tx.jobs.succeed(late, {})


def test_job_publishes_once(registry: Registry) -> None:
    """Even where a handler, by mistake, publishes without finishing its job and then again."""
    model, lease = a_model(registry), a_lease(registry)
    with registry.transaction() as tx:
        tx.calibrators.publish(lease, model, *_CONTENT, None, "")
    with pytest.raises(ConflictError), registry.transaction() as tx:
        tx.calibrators.publish(lease, model, *_CONTENT, None, "")
    with registry.reading() as tx:
        assert tx.models.get("resnet").latest_version == 1


def test_unknown_dataset_publishes_nothing(registry: Registry) -> None:
    """A calibrator may have no dataset, but not an unknown dataset."""
    model, lease = a_model(registry), a_lease(registry)
    with pytest.raises(NotFoundError), registry.transaction() as tx:
        tx.calibrators.publish(lease, model, "nowhere", {}, b"", None, "")
    with registry.transaction() as tx:
        assert tx.calibrators.publish(lease, model, None, {}, b"", None, "") == 1
