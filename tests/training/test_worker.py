"""The worker's loop in this process: outcomes of attempts, and database outages."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from recalib.errors import (
    ConflictError,
    CorruptError,
    InputError,
    NotFoundError,
    RecalibError,
    UnavailableError,
)
from recalib.registry import Job, Registry, Transaction
from tests.registry.interleaving import Interleaved
from tests.registry.scenes import KIND, a_model
from training.worker import Cancelled, JobContext, JobHandler, Worker

pytestmark = pytest.mark.sqlite_only


def _worker(registry: Registry, handler: JobHandler, **options: float) -> Worker:
    seconds = {"lease_seconds": 60.0, "poll_seconds": 0.01, "retry_seconds": 3600.0, **options}
    return Worker(registry, {KIND: handler}, name="w", **seconds)


def _run(registry: Registry, handler: JobHandler, **options: float) -> Job:
    """Run one job with this handler; return the job."""
    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {"bins": 15})
    assert _worker(registry, handler, **options).work_once(threading.Event())
    with registry.reading() as tx:
        return tx.jobs.get(job.id)


def _raising(error: BaseException) -> JobHandler:
    def handler(context: JobContext) -> None:
        raise error

    return handler


@pytest.mark.both_databases
def test_publish_finishes_the_job(registry: Registry) -> None:
    """The result has the model, the version and the handler's fields."""
    model = a_model(registry)

    def handler(context: JobContext) -> None:
        assert context.payload == {"bins": 15}
        context.publish(
            model,
            dataset_name="validation",
            card={},
            parameters=b"",
            promote_alias="champion",
            reason="better",
            result={"promoted": True},
        )

    job = _run(registry, handler)
    assert job.state == "succeeded"
    assert job.result == {"promoted": True, "model": "resnet", "version": 1}
    with registry.reading() as tx:
        assert tx.aliases.get(model, "champion").version == 1


@pytest.mark.both_databases
def test_job_may_end_while_its_model_is_deleted(registry: Registry) -> None:
    """Both lock the job before the model, and neither waits for ever."""
    model = a_model(registry)

    def delete() -> None:
        with registry.transaction() as tx:
            tx.deletions.model(model, "anna", force=True)

    deletion = Interleaved(registry, delete)

    def handler(context: JobContext) -> None:
        with context.finishing() as tx:
            deletion.start_after_write(tx)
            tx.monitors.record(model, 1, "refit_impossible", "job", "no data")
            tx.jobs.succeed(context.lease, {})

    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {}, model=model)
    assert _worker(registry, handler).work_once(threading.Event())
    deletion.finish()
    with registry.reading() as tx:
        assert tx.jobs.counts() == {(KIND, "succeeded"): 1}
        with pytest.raises(NotFoundError):
            tx.jobs.get(job.id)


def test_cancelled_job_does_not_publish(registry: Registry) -> None:
    """Its data set was deleted before it noticed, and other data has the name now."""
    model = a_model(registry)

    def handler(context: JobContext) -> None:
        with registry.transaction() as tx:
            tx.deletions.dataset(model, "validation", "anna", force=True)
            tx.datasets.create(model, "validation", "1" * 64, 5, 2, 99, "text/csv", "logits", {})
        context.publish(model, dataset_name="validation", card={}, parameters=b"")

    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {"dataset": "validation"}, model=model)
    assert _worker(registry, handler).work_once(threading.Event())
    with registry.reading() as tx:
        assert tx.jobs.get(job.id).state == "cancelled"
        assert tx.calibrators.page(model, None, 9) == []


def test_job_succeeds_when_its_handler_returns(registry: Registry) -> None:
    """The result is empty."""
    job = _run(registry, lambda context: None)
    assert (job.state, job.result) == ("succeeded", {})


def test_handler_can_finish_in_its_own_transaction(registry: Registry) -> None:
    """Needed by jobs that publish something other than a calibrator."""

    def handler(context: JobContext) -> None:
        with context.finishing() as tx:
            tx.models.create("made", None, 2, actor="job")
            tx.jobs.succeed(context.lease, {"made": 1})

    assert _run(registry, handler).result == {"made": 1}


@pytest.mark.both_databases
def test_failure_while_finishing_is_rolled_back(registry: Registry) -> None:
    """Neither the result nor the end of the job is stored; the attempt fails."""

    def handler(context: JobContext) -> None:
        with context.finishing() as tx:
            tx.models.create("made", None, 2, actor="job")
            tx.jobs.succeed(context.lease, {})
            raise OSError("no")

    job = _run(registry, handler)
    assert (job.state, job.error) == ("queued", "OSError: no")
    with registry.reading() as tx:
        assert tx.models.page(None, 9) == []


@pytest.mark.parametrize(
    "error",
    [
        InputError("options.bins", found="0", accepted="at least 1"),
        NotFoundError("dataset", "d"),
        ConflictError("taken"),
        CorruptError("damaged"),
    ],
)
def test_permanent_error_is_not_retried(registry: Registry, error: RecalibError) -> None:
    """The job has the exact error message."""
    job = _run(registry, _raising(error))
    assert (job.state, job.error, job.attempts) == ("failed", str(error), 1)


@pytest.mark.parametrize("error", [UnavailableError("away"), OSError("disk"), ValueError("bug")])
def test_temporary_error_is_retried_later(registry: Registry, error: Exception) -> None:
    """The job is queued again, with a delay."""
    job = _run(registry, _raising(error))
    assert (job.state, job.attempts) == ("queued", 1)
    assert str(error) in (job.error or "")
    assert not _worker(registry, _raising(error)).work_once(threading.Event())


def test_attempt_that_takes_longer_than_its_kind_may_fails(registry: Registry) -> None:
    """Permanently, although a handler catches every error: it would take as long again."""

    def handler(context: JobContext) -> None:
        with suppress(Exception):
            context.check_cancelled()

    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {})
    worker = Worker(registry, {KIND: handler}, name="w", max_seconds={KIND: 0.0})
    assert worker.work_once(threading.Event())
    with registry.reading() as tx:
        job = tx.jobs.get(job.id)
    assert (job.state, job.attempts) == ("failed", 1)
    assert "at most 0 s for a job of kind" in str(job.error)


def test_attempts_run_out(registry: Registry) -> None:
    """After three attempts the job fails with the last error."""
    job = _run(registry, _raising(OSError("disk")), retry_seconds=0)
    worker = _worker(registry, _raising(OSError("disk")), retry_seconds=0)
    while worker.work_once(threading.Event()):
        pass
    with registry.reading() as tx:
        job = tx.jobs.get(job.id)
    assert (job.state, job.attempts, job.error) == ("failed", 3, "OSError: disk")


def test_the_wait_doubles_and_is_bounded(registry: Registry) -> None:
    """2, 4, 8, ... seconds, at most five minutes."""
    worker = _worker(registry, _raising(OSError()), retry_seconds=2)
    waits = [worker._retry_after(attempts) for attempts in range(1, 12)]
    assert waits[:4] == [2, 4, 8, 16]
    assert waits[-1] == 300


def test_handler_cannot_suppress_cancellation(registry: Registry) -> None:
    """`except Exception` does not catch it; the job ends cancelled."""

    def handler(context: JobContext) -> None:
        with context.registry.transaction() as tx:
            tx.jobs.cancel(context.lease.job.id)
        while True:
            try:
                context.check_cancelled()
            except Exception:
                pytest.fail("swallowed")

    assert _run(registry, handler, lease_seconds=0.06).state == "cancelled"


@pytest.mark.both_databases
def test_cancelled_job_publishes_nothing_after_a_heartbeat(registry: Registry) -> None:
    """`finishing` checks for cancellation, for handlers that never check."""
    model = a_model(registry)

    def handler(context: JobContext) -> None:
        with context.registry.transaction() as tx:
            tx.jobs.cancel(context.lease.job.id)
        context.beat(60)
        context.publish(model, dataset_name=None, card={}, parameters=b"")

    assert _run(registry, handler).state == "cancelled"
    with registry.reading() as tx:
        assert tx.calibrators.latest(model) is None


@pytest.mark.both_databases
def test_handler_is_notified_of_a_lost_lease(registry: Registry) -> None:
    """The heartbeat detects the loss; the other worker's attempt is unaffected."""
    reasons = []

    def handler(context: JobContext) -> None:
        with context.registry.transaction() as tx:
            tx.jobs.heartbeat(context.lease, -1)
            assert tx.jobs.claim("other", [KIND], 60)
        while True:
            try:
                context.check_cancelled()
            except Cancelled as cancelled:
                reasons.append(cancelled.reason)
                raise

    job = _run(registry, handler, lease_seconds=0.06)
    assert reasons == ["lost"]
    assert (job.state, job.worker, job.attempts) == ("running", "other", 2)


def test_heartbeat_sends_progress_and_extends_the_lease(registry: Registry) -> None:
    """Only the newest progress is sent; a lease shorter than the job is extended."""
    progress: list[object] = []

    def handler(context: JobContext) -> None:
        context.progress(0.1, "reading")
        context.progress(0.5, "fitting")
        while not progress:
            with context.registry.reading() as tx:
                progress.extend(filter(None, [tx.jobs.get(context.lease.job.id).progress]))

    job = _run(registry, handler, lease_seconds=0.3)
    assert progress == [{"fraction": 0.5, "message": "fitting"}]
    assert (job.state, job.attempts) == ("succeeded", 1)


@pytest.mark.both_databases
def test_stopping_worker_requeues_its_unfinished_job(registry: Registry) -> None:
    """The job keeps its checkpoint; a finished job may still publish."""
    stop = threading.Event()

    def interrupted(context: JobContext) -> None:
        context.save_checkpoint({"epoch": 3})
        stop.set()
        context.check_cancelled()

    def finish(context: JobContext) -> None:
        assert context.checkpoint == {"epoch": 3}
        stop.set()
        with context.finishing() as tx:
            tx.jobs.succeed(context.lease, {})

    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {})
    for handler, state in ((interrupted, "queued"), (finish, "succeeded")):
        stop.clear()
        _worker(registry, handler).run(stop)
        with registry.reading() as tx:
            row = tx.jobs.get(job.id)
        assert row.state == state
    assert row.attempts == 1


class _Flaky(Registry):
    """A registry whose database is unavailable for a number of transactions."""

    away = 0

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        if self.away > 0:
            self.away -= 1
            raise UnavailableError("the database is away")
        with super().transaction() as tx:
            yield tx


@pytest.fixture
def flaky(database_url: str, blob_url: str) -> Iterator[_Flaky]:
    """A registry with simulated database outages."""
    registry = _Flaky(database_url, blob_url)
    yield registry
    registry.close()


def test_worker_waits_for_an_unavailable_database(
    flaky: _Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    """The outage logs one line at its start and one at its end; then work continues."""
    with flaky.transaction() as tx:
        tx.jobs.enqueue(KIND, {})
    stop = threading.Event()
    flaky.away = 4
    with caplog.at_level(logging.INFO):
        _worker(flaky, _then(stop.set), poll_seconds=0.001).run(stop)
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert (actions.count("database_away"), actions.count("database_back")) == (1, 1)
    assert "job_finished" in actions


def test_worker_survives_any_number_of_failures(flaky: _Flaky) -> None:
    """An outage of hours, with a failure every 15 seconds."""
    stop = threading.Event()
    with flaky.transaction() as tx:
        tx.jobs.enqueue(KIND, {})
    flaky.away = 1_200
    _worker(flaky, _then(stop.set), poll_seconds=0.0).run(stop)
    assert flaky.away == 0


def test_publish_retries_while_the_database_is_unavailable(
    flaky: _Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database restart does not lose the result of a long fit."""
    monkeypatch.setattr("training.job_context._PUBLISH_RETRY_SECONDS", [0.0] * 3)
    model = a_model(flaky)

    def handler(context: JobContext) -> None:
        flaky.away = 2
        context.publish(model, dataset_name=None, card={}, parameters=b"")

    assert _run(flaky, handler).state == "succeeded"


def test_a_heartbeat_survives_an_outage(flaky: _Flaky) -> None:
    """The heartbeat retries; the lease remains valid if no other worker claimed the job."""

    def handler(context: JobContext) -> None:
        flaky.away = 2
        context.progress(0.5, "fitting")
        while True:
            with flaky.reading() as tx:
                if tx.jobs.get(context.lease.job.id).progress:
                    return

    assert _run(flaky, handler, lease_seconds=0.06).state == "succeeded"


def test_outage_at_the_end_of_a_job_costs_at_most_one_attempt(flaky: _Flaky) -> None:
    """The job runs again after its lease expires."""

    def handler(context: JobContext) -> None:
        flaky.away = 1

    with flaky.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {})
    with pytest.raises(UnavailableError):
        _worker(flaky, handler).work_once(threading.Event())
    with flaky.transaction() as tx:
        assert tx.jobs.get(job.id).state == "running"


def test_log_lines_carry_an_action_and_the_job(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """Structured fields serve log processors."""
    with caplog.at_level(logging.INFO, logger="training"):
        job = _run(registry, lambda context: None)
    lines = [
        (getattr(record, "action", ""), getattr(record, "job_id", "")) for record in caplog.records
    ]
    assert lines == [("job_started", job.id), ("job_finished", job.id)]


def _then(act: Callable[[], None]) -> JobHandler:
    def handler(context: JobContext) -> None:
        act()

    return handler
