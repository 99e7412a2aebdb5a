"""The worker's loop in this process: how attempts end, and what happens without a database."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
from tests.registry.scenes import KIND, a_model
from training.worker import Cancelled, JobContext, JobHandler, Worker


def _worker(registry: Registry, handler: JobHandler, **options: float) -> Worker:
    seconds = {"lease_seconds": 60.0, "poll_seconds": 0.01, "retry_seconds": 3600.0, **options}
    return Worker(registry, {KIND: handler}, name="w", **seconds)


def _run(registry: Registry, handler: JobHandler, **options: float) -> Job:
    """Let a worker do one job, with that handler; return what became of the job."""
    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {"bins": 15})
    assert _worker(registry, handler, **options).work_once(threading.Event())
    with registry.reading() as tx:
        return tx.jobs.get(job.id)


def _raising(error: BaseException) -> JobHandler:
    def handler(context: JobContext) -> None:
        raise error

    return handler


def test_a_handler_publishes_and_finishes_in_one(registry: Registry) -> None:
    """The result names the model and the version, beside what the handler adds."""
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


def test_a_handler_that_returns_has_succeeded(registry: Registry) -> None:
    """With an empty result, where it finished nothing itself."""
    job = _run(registry, lambda context: None)
    assert (job.state, job.result) == ("succeeded", {})


def test_a_handler_may_finish_in_a_transaction_of_its_own(registry: Registry) -> None:
    """For jobs that publish something else than a calibrator."""

    def handler(context: JobContext) -> None:
        with context.finishing() as tx:
            tx.models.create("made", None, 2, actor="job")
            tx.jobs.succeed(context.lease, {"made": 1})

    assert _run(registry, handler).result == {"made": 1}


def test_what_fails_while_finishing_leaves_nothing(registry: Registry) -> None:
    """Neither the result nor the end of the job; the attempt counts as failed."""

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
def test_what_cannot_be_done_is_not_tried_again(registry: Registry, error: RecalibError) -> None:
    """The job's error is ours, word by word."""
    job = _run(registry, _raising(error))
    assert (job.state, job.error, job.attempts) == ("failed", str(error), 1)


@pytest.mark.parametrize("error", [UnavailableError("away"), OSError("disk"), ValueError("bug")])
def test_what_may_go_better_later_is_tried_again(registry: Registry, error: Exception) -> None:
    """Until the attempts are used up; later, so not at once."""
    job = _run(registry, _raising(error))
    assert (job.state, job.attempts) == ("queued", 1)
    assert str(error) in (job.error or "")
    assert not _worker(registry, _raising(error)).work_once(threading.Event())


def test_attempts_run_out(registry: Registry) -> None:
    """Three by default; then the last error stays."""
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


def test_a_handler_cannot_swallow_its_cancelling(registry: Registry) -> None:
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


def test_a_cancelled_job_publishes_nothing_once_it_is_known(registry: Registry) -> None:
    """`finishing` looks too, for handlers that never ask."""
    model = a_model(registry)

    def handler(context: JobContext) -> None:
        with context.registry.transaction() as tx:
            tx.jobs.cancel(context.lease.job.id)
        context.beat(60)
        context.publish(model, dataset_name=None, card={}, parameters=b"")

    assert _run(registry, handler).state == "cancelled"
    with registry.reading() as tx:
        assert tx.calibrators.latest(model) is None


def test_a_lost_lease_is_told_to_the_handler(registry: Registry) -> None:
    """The heartbeat notices; the other worker's attempt stands."""
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


def test_progress_and_the_lease_travel_with_the_heartbeat(registry: Registry) -> None:
    """The newest only; a lease shorter than the job is extended as it goes."""
    seen: list[object] = []

    def handler(context: JobContext) -> None:
        context.progress(0.1, "reading")
        context.progress(0.5, "fitting")
        while not seen:
            with context.registry.reading() as tx:
                seen.extend(filter(None, [tx.jobs.get(context.lease.job.id).progress]))

    job = _run(registry, handler, lease_seconds=0.3)
    assert seen == [{"fraction": 0.5, "message": "fitting"}]
    assert (job.state, job.attempts) == ("succeeded", 1)


def test_a_stopping_worker_gives_back_what_it_has_not_finished(registry: Registry) -> None:
    """With its checkpoint; what is done may still be published."""
    stop = threading.Event()

    def interrupted(context: JobContext) -> None:
        context.save_checkpoint({"epoch": 3})
        stop.set()
        context.check_cancelled()

    def done(context: JobContext) -> None:
        assert context.checkpoint == {"epoch": 3}
        stop.set()
        with context.finishing() as tx:
            tx.jobs.succeed(context.lease, {})

    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {})
    for handler, state in ((interrupted, "queued"), (done, "succeeded")):
        stop.clear()
        _worker(registry, handler).run(stop)
        with registry.reading() as tx:
            found = tx.jobs.get(job.id)
        assert found.state == state
    assert found.attempts == 1


class _Flaky(Registry):
    """A registry whose database is away for a number of transactions."""

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
    """A registry that can be told to be away."""
    registry = _Flaky(database_url, blob_url)
    yield registry
    registry.close()


def test_a_database_that_is_away_is_waited_for(
    flaky: _Flaky, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it goes, one when it is back, and the work goes on."""
    with flaky.transaction() as tx:
        tx.jobs.enqueue(KIND, {})
    stop = threading.Event()
    flaky.away = 4
    with caplog.at_level(logging.INFO):
        _worker(flaky, _then(stop.set), poll_seconds=0.001).run(stop)
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert (actions.count("database_away"), actions.count("database_back")) == (1, 1)
    assert "job_finished" in actions


def test_publishing_waits_for_a_database_that_is_away(
    flaky: _Flaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hours of fitting are not lost to a restart."""
    monkeypatch.setattr("training.job_context._PUBLISH_RETRY_SECONDS", [0.0] * 3)
    model = a_model(flaky)

    def handler(context: JobContext) -> None:
        flaky.away = 2
        context.publish(model, dataset_name=None, card={}, parameters=b"")

    assert _run(flaky, handler).state == "succeeded"


def test_a_heartbeat_survives_an_outage(flaky: _Flaky) -> None:
    """It goes on trying, and the lease is good if nobody took the job."""

    def handler(context: JobContext) -> None:
        flaky.away = 2
        context.progress(0.5, "fitting")
        while True:
            with flaky.reading() as tx:
                if tx.jobs.get(context.lease.job.id).progress:
                    return

    assert _run(flaky, handler, lease_seconds=0.06).state == "succeeded"


def test_an_outage_at_the_end_of_a_job_costs_an_attempt_at_most(flaky: _Flaky) -> None:
    """The lease stays until it runs out; then the job is done again."""

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
    """For machines that read logs."""
    with caplog.at_level(logging.INFO, logger="training"):
        job = _run(registry, lambda context: None)
    lines = [(getattr(one, "action", ""), getattr(one, "job_id", "")) for one in caplog.records]
    assert lines == [("job_started", job.id), ("job_finished", job.id)]


def _then(act: Callable[[], None]) -> JobHandler:
    def handler(context: JobContext) -> None:
        act()

    return handler
