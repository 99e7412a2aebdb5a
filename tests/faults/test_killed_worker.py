"""kill -9 of a worker that publishes, and jobs after the clock was set back.

Killed in the middle of a fit: `tests/end_to_end/test_workers.py`. At any moment, and paused past
its lease: `tests/training/test_processes.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from recalib.registry import Job, Model, Registry, tables
from recalib.registry.job_kinds import FIT, REFIT
from tests.end_to_end.programs import Programs, recalib_command, until
from tests.faults.dying import dying_command
from tests.fitting.conftest import draw
from tests.service.conftest import NPZ, npz
from tests.training.test_refit_job import CAPTURING, serve
from tests.training.watched import a_champion

pytestmark = pytest.mark.slow

_LEASE_SECONDS = 2.0


@pytest.fixture
def settings(database_url: str, blob_url: str) -> dict[str, Any]:
    """Settings of every worker."""
    urls = {"database_url": database_url, "blob_url": blob_url}
    return {**urls, "lease_seconds": _LEASE_SECONDS}


def test_workers_killed_while_publishing(
    programs: Programs, registry: Registry, settings: dict[str, Any]
) -> None:
    """A killed worker leaves nothing, and the next one publishes once: a fit, then a candidate."""
    model = a_champion(registry, CAPTURING)
    serve(registry, model, ago=2_400, temperature=9.0)
    fit = _ask_for_a_fit(registry, model)
    _set_the_clock_back(registry)

    programs.command = partial(dying_command, "inside", 1, "INSERT INTO calibrators")
    worker = programs.worker(**settings)
    assert worker.wait() == -9, programs.log_of(worker)
    assert _versions(registry, model) == [1]
    assert _job(registry, fit).state == "running"

    programs.command = partial(dying_command, "inside", 1, "INSERT INTO candidates")
    worker = programs.worker(**settings)
    until(lambda: _job(registry, fit).state == "succeeded", "the second attempt")
    assert _versions(registry, model) == [1, 2]
    with registry.transaction() as tx:
        refit = tx.jobs.enqueue(REFIT, {"model": model.name, "reason": "test"}, model=model)
    assert worker.wait() == -9, programs.log_of(worker)
    assert _versions(registry, model) == [1, 2]
    with registry.reading() as tx:
        assert tx.candidates.latest(model) is None
        assert tx.monitors.events(model, 9) == []

    programs.command = recalib_command
    worker = programs.worker(**settings)
    until(lambda: _job(registry, refit).state == "succeeded", "the refit")
    assert _versions(registry, model) == [1, 2, 3]
    with registry.reading() as tx:
        candidate = tx.candidates.latest(model)
        assert candidate is not None
        assert candidate.version == 3
        assert [event.kind for event in tx.monitors.events(model, 9)] == ["refitted"]
    assert [_job(registry, job).attempts for job in (fit, refit)] == [2, 2]
    worker.terminate()
    assert worker.wait() == 0
    assert "Traceback" not in programs.log_of(worker)


def _ask_for_a_fit(registry: Registry, model: Model) -> Job:
    body = npz(*draw(500, 4, 3.0))
    with registry.blobs.writer() as blob:
        blob.write(body)
        digest = blob.commit()
    payload = {
        "model": model.name, "dataset": "validation", "map": "temperature", "objective": "nll",
        "options": {}, "promote": False,
    }  # fmt: skip
    with registry.transaction() as tx:
        tx.datasets.create(
            model, "validation", digest, 500, 4, len(body), NPZ["Content-Type"], "logits", {}
        )
        return tx.jobs.enqueue(FIT, payload, model=model)


def _set_the_clock_back(registry: Registry) -> None:
    """Set the clock of the jobs back by an hour: stored times are then an hour ahead."""
    table = tables.jobs
    later = {name: table.c[name] + 3600 for name in ("created_at", "run_after")}
    with registry.transaction() as tx:
        tx.connection.execute(update(table).where(table.c.state == "queued").values(**later))


def _job(registry: Registry, job: Job) -> Job:
    with registry.reading() as tx:
        return tx.jobs.get(job.id)


def _versions(registry: Registry, model: Model) -> list[int]:
    with registry.reading() as tx:
        return [calibrator.version for calibrator in tx.calibrators.page(model, None, 9)]
