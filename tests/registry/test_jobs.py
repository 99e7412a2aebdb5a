"""The queue: order, leases, fences, retries, cancelling.

Leases of negative length expire immediately, so that no test waits.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from recalib.errors import FencedError, NotFoundError
from recalib.registry import Job, Registry
from recalib.registry.jobs import Jobs
from tests.registry.scenes import KIND, a_lease, a_model, claimed


def _enqueue(registry: Registry, **options: object) -> Job:
    with registry.transaction() as tx:
        return tx.jobs.enqueue(KIND, {}, **options)  # type: ignore[arg-type]


def _get(registry: Registry, job_id: str) -> Job:
    with registry.reading() as tx:
        return tx.jobs.get(job_id)


def test_queued_job_keeps_its_payload(registry: Registry) -> None:
    """State, payload, model and defaults."""
    model = a_model(registry)
    with registry.transaction() as tx:
        job = tx.jobs.enqueue(KIND, {"map": "beta"}, model=model)
    assert (job.state, job.payload, job.model) == ("queued", {"map": "beta"}, "resnet")
    assert (job.attempts, job.max_attempts, job.priority) == (0, 3, 0)
    assert (job.started_at, job.finished_at, job.result, job.error) == (None, None, None, None)
    with registry.reading() as tx, pytest.raises(NotFoundError):
        tx.jobs.get("nothing")


def test_failed_transaction_enqueues_no_job(registry: Registry) -> None:
    """Work and its cause commit together."""
    with suppress(RuntimeError), registry.transaction() as tx:
        tx.jobs.enqueue(KIND, {})
        raise RuntimeError
    with registry.transaction() as tx:
        assert tx.jobs.claim("w", [KIND], 60) is None


def test_jobs_are_claimed_by_priority_then_age(registry: Registry) -> None:
    """Priorities may be negative."""
    jobs = {
        name: _enqueue(registry, priority=rank)
        for name, rank in (("low", -1), ("first", 0), ("second", 0), ("high", 5))
    }
    order = [claimed(registry).job.id for _ in jobs]
    assert order == [jobs[name].id for name in ("high", "first", "second", "low")]


def _claims(registry: Registry, names: dict[str, str], count: int) -> list[str]:
    return [names[claimed(registry).job.id] for _ in range(count)]


def test_owners_take_turns(registry: Registry) -> None:
    """A thousand fits of one key do not delay those of another by more than the one that runs."""
    names = {_enqueue(registry, owner="alpha").id: "alpha" for _ in range(30)}
    assert _claims(registry, names, 2) == ["alpha", "alpha"]
    names |= {_enqueue(registry, owner="beta").id: "beta" for _ in range(2)}
    names[_enqueue(registry, owner="gamma").id] = "gamma"
    order = ["beta", "gamma", "alpha", "beta", "alpha", "alpha"]
    assert _claims(registry, names, 6) == order


def test_models_of_an_owner_take_turns(registry: Registry) -> None:
    """Models of different owners do not: a key gains nothing from many models."""
    models = {name: a_model(registry, name) for name in ("one", "two", "three")}
    names = {}
    for name, owner in (*[("one", "alpha")] * 3, ("two", "alpha"), ("three", "beta")):
        names[_enqueue(registry, model=models[name], owner=owner).id] = name
    assert _claims(registry, names, 5) == ["one", "three", "two", "one", "one"]


def test_automatic_jobs_get_a_quarter_of_the_turns(registry: Registry) -> None:
    """Jobs that the server requests itself wait for callers, but never starve."""
    names = {_enqueue(registry).id: "automatic" for _ in range(3)}
    names |= {_enqueue(registry, owner=f"key{i % 2}").id: "requested" for i in range(8)}
    order = _claims(registry, names, 11)
    assert order == [*["requested"] * 3, "automatic"] * 2 + ["requested"] * 2 + ["automatic"]


def test_worker_claims_only_known_kinds(registry: Registry) -> None:
    """The others wait for a worker that does."""
    _enqueue(registry)
    with registry.transaction() as tx:
        assert tx.jobs.claim("w", ["train"], 60) is None
        assert tx.jobs.claim("w", ["train", KIND], 60) is not None


def test_future_job_is_not_claimed(registry: Registry) -> None:
    """Later by the database's clock."""
    _enqueue(registry, run_after_seconds=3600)
    with registry.transaction() as tx:
        assert tx.jobs.claim("w", [KIND], 60) is None


def test_many_claimers_get_each_job_once(registry: Registry) -> None:
    """Threads with separate connections use the same queue."""
    jobs = {_enqueue(registry).id for _ in range(20)}

    def claim(_: int) -> str:
        return claimed(registry).job.id

    with ThreadPoolExecutor(5) as threads:
        assert sorted(threads.map(claim, range(20))) == sorted(jobs)


def test_postgresql_claims_do_not_block_each_other(registry: Registry, database_url: str) -> None:
    """SKIP LOCKED: while one claim is uncommitted, another takes the next job."""
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has one writer at a time")
    first, second = _enqueue(registry), _enqueue(registry)
    with registry.transaction() as first_tx, registry.transaction() as second_tx:
        leases = [tx.jobs.claim("w", [KIND], 60) for tx in (first_tx, second_tx)]
    assert [lease and lease.job.id for lease in leases] == [first.id, second.id]


def test_expired_lease_fences_the_first_worker(registry: Registry) -> None:
    """Every action of the paused worker is refused; the second worker finishes."""
    paused = a_lease(registry, lease_seconds=-1)
    second = claimed(registry, "second")
    assert (second.job.id, second.job.attempts, second.fence) == (
        paused.job.id,
        2,
        paused.fence + 1,
    )
    with registry.transaction() as tx:
        for attempt in (
            lambda: tx.jobs.heartbeat(paused, 60),
            lambda: tx.jobs.checkpoint(paused, {}),
            lambda: tx.jobs.succeed(paused, {}),
            lambda: tx.jobs.fail(paused, "no", None),
            lambda: tx.jobs.release(paused),
            lambda: tx.jobs.acknowledge_cancel(paused),
        ):
            with pytest.raises(FencedError):
                attempt()
        tx.jobs.succeed(second, {"version": 1})
    job = _get(registry, second.job.id)
    assert (job.state, job.result, job.worker) == ("succeeded", {"version": 1}, "second")


def test_heartbeat_extends_the_lease_and_stores_progress(registry: Registry) -> None:
    """Also after its lease has expired, unless another worker has claimed the job."""
    lease = a_lease(registry, lease_seconds=-1)
    with registry.transaction() as tx:
        assert tx.jobs.heartbeat(lease, 60, {"fraction": 0.5}) is False
        assert tx.jobs.claim("other", [KIND], 60) is None
        assert tx.jobs.heartbeat(lease, 60) is False
        assert tx.jobs.get(lease.job.id).progress == {"fraction": 0.5}


def test_job_that_kills_its_workers_fails(registry: Registry) -> None:
    """Each expired lease has cost an attempt; the error says what happened."""
    lease = a_lease(registry, lease_seconds=-1, max_attempts=2)
    claimed(registry, lease_seconds=-1)
    with registry.transaction() as tx:
        assert tx.jobs.claim("w", [KIND], 60) is None
    job = _get(registry, lease.job.id)
    assert (job.state, job.attempts) == ("failed", 2)
    assert job.error is not None
    assert "no attempts left" in job.error
    assert job.finished_at is not None


def test_failed_job_is_retried_until_no_attempts_are_left(registry: Registry) -> None:
    """The last error stays."""
    lease = a_lease(registry, max_attempts=2)
    with registry.transaction() as tx:
        tx.jobs.fail(lease, "first", retry_after_seconds=0)
    assert (_get(registry, lease.job.id).state, _get(registry, lease.job.id).error) == (
        "queued",
        "first",
    )
    with registry.transaction() as tx:
        again = tx.jobs.claim("w", [KIND], 60)
        assert again is not None
        tx.jobs.fail(again, "second", retry_after_seconds=0)
    job = _get(registry, lease.job.id)
    assert (job.state, job.error, job.attempts) == ("failed", "second", 2)


def test_retry_is_delayed(registry: Registry) -> None:
    """A failed job does not run before the time of its retry."""
    lease = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.fail(lease, "away", retry_after_seconds=3600)
        assert tx.jobs.claim("w", [KIND], 60) is None
        assert tx.jobs.get(lease.job.id).state == "queued"


def test_permanent_failure_is_not_retried(registry: Registry) -> None:
    """No delay means never."""
    lease = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.fail(lease, "no such dataset", None)
    assert _get(registry, lease.job.id).state == "failed"


def test_any_error_text_can_be_stored(registry: Registry) -> None:
    """Also what PostgreSQL's text does not take: a job must not live because it failed badly."""
    lease = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.fail(lease, "a\x00b\ud800" + "c" * 9999, None)
    error = _get(registry, lease.job.id).error
    assert error is not None
    assert error.startswith("a\N{REPLACEMENT CHARACTER}b?ccc")
    assert len(error) == 4000


def test_released_job_loses_no_attempt(registry: Registry) -> None:
    """It can be claimed at once, and its checkpoint is still there."""
    lease = a_lease(registry, max_attempts=1)
    with registry.transaction() as tx:
        tx.jobs.checkpoint(lease, {"epoch": 3})
        tx.jobs.release(lease)
    again = claimed(registry)
    assert (again.job.id, again.job.attempts) == (lease.job.id, 1)
    assert again.job.checkpoint == {"epoch": 3}


def test_queued_job_is_cancelled_immediately(registry: Registry) -> None:
    """And never claimed."""
    job = _enqueue(registry)
    with registry.transaction() as tx:
        assert tx.jobs.cancel(job.id).state == "cancelled"
        assert tx.jobs.claim("w", [KIND], 60) is None
    assert _get(registry, job.id).finished_at is not None


def test_cancelling_a_running_job_requests_a_stop(registry: Registry) -> None:
    """Its next heartbeat reports it; the worker acknowledges the stop."""
    lease = a_lease(registry)
    with registry.transaction() as tx:
        job = tx.jobs.cancel(lease.job.id)
        assert (job.state, job.cancel_requested, job.finished_at) == ("running", True, None)
        assert tx.jobs.heartbeat(lease, 60) is True
        tx.jobs.acknowledge_cancel(lease)
    assert _get(registry, lease.job.id).state == "cancelled"


@pytest.mark.parametrize("how", ["expires", "fails", "is released"])
def test_job_with_a_stop_request_is_not_claimed_again(registry: Registry, how: str) -> None:
    """However its attempt ends, it ends cancelled."""
    lease = a_lease(registry, lease_seconds=-1)
    with registry.transaction() as tx:
        tx.jobs.cancel(lease.job.id)
        if how == "fails":
            tx.jobs.fail(lease, "oh", retry_after_seconds=0)
        elif how == "is released":
            tx.jobs.release(lease)
        assert tx.jobs.claim("w", [KIND], 60) is None
    assert _get(registry, lease.job.id).state == "cancelled"


def test_finished_job_does_not_change(registry: Registry) -> None:
    """Cancelling it changes nothing; an unknown one is not found."""
    lease = a_lease(registry)
    with registry.transaction() as tx:
        tx.jobs.succeed(lease, {"version": 1})
        before = tx.jobs.get(lease.job.id)
        assert tx.jobs.cancel(lease.job.id) == before
        with pytest.raises(NotFoundError):
            tx.jobs.cancel("nothing")


def test_unfinished_unique_job_exists_once(registry: Registry) -> None:
    """A periodic job that is still waiting or running is not doubled; a finished one makes room."""
    first = _enqueue(registry, unique="sweep")
    assert _enqueue(registry, unique="sweep").id == first.id
    lease = claimed(registry)
    assert _enqueue(registry, unique="sweep").id == first.id
    with registry.transaction() as tx:
        tx.jobs.succeed(lease, {})
    assert _enqueue(registry, unique="sweep").id != first.id


def test_job_without_attempts_left_is_not_claimed(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease expires between the two statements of a claim; the next claim ends it."""
    lease = a_lease(registry, lease_seconds=-1.0, max_attempts=1)
    with monkeypatch.context() as patch, registry.transaction() as tx:
        patch.setattr(Jobs, "_end_expired_jobs", lambda jobs: None)
        assert tx.jobs.claim("w", [KIND], 60.0) is None
    with registry.transaction() as tx:
        assert tx.jobs.claim("w", [KIND], 60.0) is None
        assert tx.jobs.get(lease.job.id).state == "failed"


def test_concurrent_schedulers_enqueue_one_unique_job(registry: Registry) -> None:
    """The unique index decides between simultaneous schedulers."""

    def schedule(_: int) -> str:
        return _enqueue(registry, unique="sweep").id

    with ThreadPoolExecutor(5) as threads:
        assert len(set(threads.map(schedule, range(20)))) == 1


def test_pages_are_newest_first_and_filtered(registry: Registry) -> None:
    """By model, by state; the next page begins below the last job of the page before."""
    model = a_model(registry)
    jobs = [_enqueue(registry, model=model).id, *(_enqueue(registry).id for _ in range(3))]
    with registry.transaction() as tx:
        tx.jobs.cancel(jobs[1])
    with registry.reading() as tx:
        first = tx.jobs.page(None, None, None, 2)
        rest = tx.jobs.page(None, None, first[-1].sequence, 9)
        assert [job.id for job in first + rest] == jobs[::-1]
        assert [job.id for job in tx.jobs.page(model, None, None, 9)] == jobs[:1]
        assert [job.id for job in tx.jobs.page(None, "cancelled", None, 9)] == [jobs[1]]
        assert tx.jobs.counts() == {(KIND, "cancelled"): 1, (KIND, "queued"): 3}


def test_old_finished_jobs_of_a_kind_are_pruned(registry: Registry) -> None:
    """But for the newest, those of other kinds, and any that is unfinished."""

    def ended(kind: str) -> None:
        with registry.transaction() as tx:
            tx.jobs.enqueue(kind, {}, unique=kind)
            assert tx.jobs.is_waiting(kind)
            lease = tx.jobs.claim("w", [kind], 60)
            assert lease is not None
            tx.jobs.succeed(lease, {})
            assert not tx.jobs.is_waiting(kind)

    for kind in ("look", "fit", "look", "look", "look"):
        ended(kind)
    with registry.transaction() as tx:
        finished = tx.jobs.page(None, None, None, 10)
        waiting = tx.jobs.enqueue("look", {}, unique="look")
        assert tx.jobs.prune("look", 2) == 2
        assert tx.jobs.prune("look", 2) == 0
        remaining = tx.jobs.page(None, None, None, 10)
        # A list goes on although the last job of its page was deleted.
        before = next(job for job in finished if job.id not in {job.id for job in remaining})
        assert [job.kind for job in tx.jobs.page(None, None, before.sequence, 10)][-1:] == ["fit"]
    assert [job.kind for job in remaining] == ["look", "look", "look", "fit"]
    assert remaining[0].id == waiting.id
