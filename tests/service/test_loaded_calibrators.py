"""Loaded calibrators of a server process and their updates, on both databases."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event

from recalib.calibrator import Calibrator
from recalib.core.card import Card, DataSummary, FitSummary
from recalib.errors import ConflictError, CorruptError, NotFoundError, UnavailableError
from recalib.registry import Registry
from recalib.settings import Settings
from service.access.authenticator import Authenticator
from service.calibration import get_or_load
from service.readiness import readiness
from service.serving import negative_cache as absent
from service.serving.loaded_calibrators import LoadedCalibrators
from service.state import State
from tests.end_to_end.programs import until

pytestmark = pytest.mark.sqlite_only

ROOM = 1 << 30
ROW = np.array([[0.0, 1.0, 2.0]])


def parameter_file(temperature: float) -> bytes:
    card = Card(
        map="temperature",
        objective="nll",
        classes=3,
        library="0",
        created_at="2026-01-01T00:00:00+00:00",
        data=DataSummary(rows=1),
        fit=FitSummary(seconds=0.0, iterations=1, converged=True, objective=0.0),
    )
    return Calibrator({"temperature": np.array(temperature)}, card).to_bytes()


def publish(registry: Registry, model: str, *contents: bytes, promote: bool = True) -> None:
    """Add a model if it is missing, and versions; the last becomes the champion."""
    for content in contents:
        with registry.transaction() as tx:
            try:
                owner = tx.models.get(model)
            except NotFoundError:
                owner = tx.models.create(model, None, 3, actor="test", serve_uncalibrated=False)
            tx.jobs.enqueue("fit", {}, model=owner)
            lease = tx.jobs.claim("test", ["fit"], 60)
            assert lease is not None
            alias = "champion" if promote else None
            tx.calibrators.publish(lease, owner, None, {}, content, alias, reason="test")
            tx.jobs.succeed(lease, {})


def point(registry: Registry, model: str, version: int, alias: str = "champion") -> None:
    with registry.transaction() as tx:
        tx.aliases.set(tx.models.get(model), alias, version, actor="test", reason="test")


@contextmanager
def statements(registry: Registry) -> Iterator[list[str]]:
    """Collect the SQL queries of the block."""
    queries: list[str] = []

    def note(_c: Any, _k: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            queries.append(statement)

    event.listen(registry._engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        event.remove(registry._engine, "before_cursor_execute", note)


@pytest.fixture
def calibrators(registry: Registry) -> LoadedCalibrators:
    return LoadedCalibrators(registry, ROOM, 60)


def version_of(calibrators: LoadedCalibrators, model: str, selector: str = "champion") -> int:
    loaded = calibrators.get(model, selector)
    assert loaded is not None
    return loaded.version


@pytest.mark.both_databases
def test_deletions_by_another_process_end_serving(
    registry: Registry, calibrators: LoadedCalibrators
) -> None:
    """Of a version, an alias and a model; another model of the same name is not mixed up."""
    publish(registry, "m", parameter_file(1.0), parameter_file(2.0), parameter_file(3.0))
    point(registry, "m", 1, "old")
    for selector in ("champion", "old", "2", "3"):
        calibrators.load("m", selector)
    calibrators.refresh()
    with registry.transaction() as tx:
        model = tx.models.get("m")
        tx.deletions.calibrator(model, 2, "test")
        tx.aliases.delete(model, "old", "test")
    assert version_of(calibrators, "m", "2") == 2  # as long as the process has not looked
    calibrators.refresh()
    assert (calibrators.get("m", "2"), calibrators.get("m", "old")) == (None, None)
    assert (version_of(calibrators, "m"), version_of(calibrators, "m", "3")) == (3, 3)
    with pytest.raises(NotFoundError):
        calibrators.load("m", "2")
    with registry.transaction() as tx:
        tx.deletions.model(model, "test", force=True)
    publish(registry, "m", parameter_file(4.0))
    publish(registry, "m", parameter_file(5.0), promote=False)
    loaded = calibrators.load("m", "1")  # before this process has seen the deletion
    assert loaded.calibrator.parameters["temperature"] == 4.0
    calibrators.refresh()
    assert calibrators.get("m", "3") is None
    assert calibrators.load("m").calibrator.parameters["temperature"] == 4.0


@pytest.mark.both_databases
def test_promotions_replace_the_served_version(
    registry: Registry, calibrators: LoadedCalibrators
) -> None:
    """Later requests use the new version; a calibrator in use still works."""
    publish(registry, "m", parameter_file(1.0), parameter_file(2.0))
    before = calibrators.load("m")
    assert (before.version, calibrators.refresh()) == (2, True)
    assert calibrators.get("m") is before
    point(registry, "m", 1)
    assert calibrators.get("m") is before
    calibrators.refresh()
    assert version_of(calibrators, "m") == 1
    assert before.run(ROW).shape == (1, 3)


@pytest.mark.slow
@pytest.mark.both_databases
def test_two_queries_read_the_changes_of_all_models(
    registry: Registry, calibrators: LoadedCalibrators
) -> None:
    """Changes and deletions, for any number of models; only new calibrators are read."""
    for i in range(12):
        publish(registry, f"m{i:02}", parameter_file(1.0), parameter_file(2.0))
        calibrators.load(f"m{i:02}", "1")
        calibrators.load(f"m{i:02}")
    calibrators.refresh()
    with statements(registry) as queries:
        calibrators.refresh()
    quiet = len(queries)
    assert quiet == 2  # of promotions, and of states that adapt to label shift
    point(registry, "m03", 1)
    with statements(registry) as queries:
        calibrators.refresh()
    assert len(queries) == quiet + 2
    versions = [version_of(calibrators, f"m{i:02}") for i in range(12)]
    assert versions == [1 if i == 3 else 2 for i in range(12)]


def test_unused_aliases_are_not_loaded(registry: Registry, calibrators: LoadedCalibrators) -> None:
    publish(registry, "used", parameter_file(1.0))
    publish(registry, "other", parameter_file(1.0), parameter_file(2.0))
    calibrators.load("used")
    point(registry, "other", 1)
    point(registry, "used", 1, alias="shadow")
    calibrators.refresh()
    assert (len(calibrators), calibrators.get("other")) == (1, None)
    assert calibrators.load("used", "shadow").version == 1


def test_promotion_between_read_and_use_is_not_lost(
    registry: Registry, calibrators: LoadedCalibrators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh passes during the first load of an alias, which has read the old version."""
    publish(registry, "m", parameter_file(1.0), parameter_file(2.0))
    publish(registry, "n", parameter_file(1.0))
    calibrators.load("n")  # so that an alias is in use
    find, interfered = calibrators._look_up, []

    def slow(model: str, selector: str) -> Any:
        state = find(model, selector)
        if not interfered:
            interfered.append(True)
            point(registry, "m", 1)
            assert calibrators.refresh()
        return state

    monkeypatch.setattr(calibrators, "_look_up", slow)
    assert calibrators.load("m").version == 1
    calibrators.refresh()
    assert version_of(calibrators, "m") == 1


def test_load_during_refresh_is_not_undone(
    registry: Registry, calibrators: LoadedCalibrators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An alias loaded during a refresh is followed; its newer version is kept."""
    contents = [parameter_file(float(t)) for t in range(1, 5)]
    publish(registry, "m", *contents)
    publish(registry, "late", *contents)
    calibrators.load("m")
    promoted, interfered = calibrators._load_target, []

    def slow(target: Any) -> Any:
        if not interfered:
            interfered.append(True)
            point(registry, "late", 3)
            assert calibrators.load("late").version == 3
        return promoted(target)

    monkeypatch.setattr(calibrators, "_load_target", slow)
    point(registry, "m", 1)
    point(registry, "late", 2)
    calibrators.refresh()
    assert (version_of(calibrators, "m"), version_of(calibrators, "late")) == (1, 3)
    calibrators.refresh()
    assert (version_of(calibrators, "m"), version_of(calibrators, "late")) == (1, 3)


@pytest.mark.both_databases
def test_restored_older_registry_is_followed(
    registry: Registry, calibrators: LoadedCalibrators
) -> None:
    """After a restore from a backup, the registry is followed although its revision is lower."""
    publish(registry, "m", parameter_file(1.0), parameter_file(2.0))
    calibrators.load("m")
    calibrators._revision = 10_000
    calibrators._revisions["m", "champion"] = 10_000
    point(registry, "m", 1)
    calibrators.refresh()
    assert version_of(calibrators, "m") == 1
    calibrators._revision = 10_000
    assert calibrators.load("m", "champion").version == 1


def test_damaged_promoted_calibrator_does_not_replace_the_served_one(
    registry: Registry, calibrators: LoadedCalibrators, caplog: pytest.LogCaptureFixture
) -> None:
    """The previous version still serves, and later promotions take effect."""
    publish(registry, "m", parameter_file(1.0))
    calibrators.load("m")
    publish(registry, "m", b"no parameters")
    calibrators.refresh()
    assert version_of(calibrators, "m") == 1
    assert [record.action for record in caplog.records if hasattr(record, "action")] == [
        "promotion_not_loaded"
    ]
    with pytest.raises(CorruptError):
        calibrators.load("m", "2")
    publish(registry, "m", parameter_file(3.0))
    calibrators.refresh()
    assert version_of(calibrators, "m") == 3


@pytest.mark.both_databases
def test_newest_champions_are_loaded(registry: Registry, calibrators: LoadedCalibrators) -> None:
    """Those that were promoted last; one that is damaged does not stop the others."""
    for name in ("old", "middle", "new"):
        publish(registry, name, parameter_file(1.0))
    publish(registry, "damaged", b"no calibrator")
    publish(registry, "unpromoted", parameter_file(1.0), promote=False)
    assert calibrators.load_champions(3, 60.0) == 2
    loaded = [calibrators.get(name) is not None for name in ("old", "middle", "new", "damaged")]
    assert loaded == [False, True, True, False]
    assert calibrators.load_champions(10, 0.0) == 0


def test_cache_evicts_unused_calibrators(registry: Registry) -> None:
    """Used calibrators stay, however early they were loaded; unused ones are evicted."""
    size = LoadedCalibrators(registry, ROOM, 60)
    for i in range(6):
        publish(registry, f"m{i}", parameter_file(1.0))
    calibrator_size = size.load("m0").size
    calibrators = LoadedCalibrators(registry, 3 * calibrator_size, 60)
    calibrators.load("m0")
    calibrators.load("m0", "1")
    for i in range(1, 6):
        assert calibrators.get("m0") is not None  # the most used calibrator, loaded first
        calibrators.load(f"m{i}")
        assert calibrators.size <= 3 * calibrator_size
    assert calibrators.get("m0", "1") is not None
    assert [i for i in range(1, 6) if calibrators.get(f"m{i}")] == [4, 5]
    assert calibrators.load("m2").version == 1


def test_calibrator_larger_than_the_cache_is_kept_alone(registry: Registry) -> None:
    calibrators = LoadedCalibrators(registry, 1, 60)
    for model in ("a", "b"):
        publish(registry, model, parameter_file(1.0))
        calibrators.load(model)
        assert calibrators.get(model) is not None
    assert (len(calibrators), calibrators.get("a")) == (1, None)


def test_missing_calibrators_are_looked_up_once_in_a_while(
    registry: Registry, calibrators: LoadedCalibrators, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not looked up on every request, and it is available soon after it is added."""
    publish(registry, "m", parameter_file(1.0), promote=False)
    for model, selector, error in [
        ("unknown", "champion", NotFoundError),
        ("m", "champion", ConflictError),
        ("m", "7", NotFoundError),
        ("m", "shadow", NotFoundError),
        ("m", "1234567890", NotFoundError),
        ("m", "0000000001", NotFoundError),
    ]:
        with pytest.raises(error):
            calibrators.load(model, selector)
        with monkeypatch.context() as patch, statements(registry) as queries:
            patch.setattr(absent, "TTL_SECONDS", 3600)  # however slow the machine is
            with pytest.raises(error):
                calibrators.load(model, selector)
        assert queries == []
    point(registry, "m", 1)
    deadline = time.monotonic() + 60
    while calibrators.get("m") is None:
        assert time.monotonic() < deadline
        try:
            calibrators.load("m")
        except ConflictError:
            time.sleep(absent.TTL_SECONDS / 5)
    assert version_of(calibrators, "m") == 1


def test_promotion_clears_the_negative_cache(
    registry: Registry, calibrators: LoadedCalibrators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absent, "TTL_SECONDS", 3600)
    publish(registry, "n", parameter_file(1.0))
    calibrators.load("n")
    publish(registry, "m", parameter_file(1.0), promote=False)
    with pytest.raises(ConflictError):
        calibrators.load("m")
    point(registry, "m", 1)
    calibrators.refresh()
    assert calibrators.load("m").version == 1


@contextmanager
def hanging(registry: Registry, monkeypatch: pytest.MonkeyPatch, model: str = "") -> Iterator[Any]:
    """Make the registry hang for all models or for one; yield the models that were read."""
    over, queries = threading.Event(), []
    reading = Registry.reading

    def slowly(ask: Callable[..., Any]) -> Callable[..., Any]:
        def slow(name: str, *more: Any) -> Any:
            if model in ("", name):
                queries.append(name)
                assert over.wait(60)
            return ask(name, *more)

        return slow

    @contextmanager
    def hang(self: Registry) -> Iterator[Any]:
        with reading(self) as tx:
            tx.models.get = slowly(tx.models.get)  # type: ignore[method-assign]
            tx.calibrators.serving = slowly(tx.calibrators.serving)  # type: ignore[method-assign]
            yield tx

    monkeypatch.setattr(Registry, "reading", hang)
    try:
        yield queries
    finally:
        over.set()


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        return type(error)


def test_slow_load_does_not_block_other_requests(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own requests wait at most for the time limit; they share one query."""
    publish(registry, "slow", parameter_file(1.0))
    publish(registry, "quick", parameter_file(1.0))
    calibrators = LoadedCalibrators(registry, ROOM, 0.3)
    with pytest.raises(NotFoundError):
        calibrators.load("slow", "9")
    calibrators._missing._errors["slow", "9"] = (0.0, calibrators._missing._errors["slow", "9"][1])

    async def ask() -> list[Any]:
        selectors = [*[("slow", "champion")] * 20, ("slow", "9"), ("quick", "champion")]
        loads = (get_or_load(calibrators, *selector) for selector in selectors)
        return await asyncio.gather(*loads, return_exceptions=True)

    calibrators.load("quick", "1")  # imports what loading needs
    with hanging(registry, monkeypatch, "slow") as queries:
        calibrators.patience_seconds = 5.0 if sys.gettrace() else 2.0
        results = asyncio.run(ask())
        assert [type(result) for result in results[:20]] == [UnavailableError] * 20
        # It was known to be missing before the registry became slow.
        assert isinstance(results[20], NotFoundError)
        assert results[21].version == 1
        assert sorted(queries) == ["slow", "slow"]
    # The load ends and serves the next request.
    until(lambda: not calibrators._single_flight._running, "the loads to end")
    assert calibrators.get("slow") is not None


def test_loaded_calibrators_serve_without_the_registry(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded ones serve, missing ones are not found, and unknown ones are unavailable."""
    publish(registry, "m", parameter_file(1.0))
    calibrators = LoadedCalibrators(registry, ROOM, 60)
    calibrators.load("m")
    assert outcome(lambda: calibrators.load("m", "9")) is NotFoundError

    def gone(self: Registry) -> None:
        raise UnavailableError("the database is gone")

    monkeypatch.setattr(Registry, "reading", gone)
    monkeypatch.setattr(absent, "TTL_SECONDS", 0.0)
    assert calibrators.refresh() is False

    def ask(selector: str) -> Any:
        return outcome(lambda: asyncio.run(get_or_load(calibrators, "m", selector)))

    assert ask("champion").version == 1
    assert ask("9") is NotFoundError
    assert ask("1") is UnavailableError


def test_readiness_answers_while_the_registry_hangs(
    registry: Registry, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a loaded calibrator the answer comes soon; all callers share one query."""
    publish(registry, "m", parameter_file(1.0))
    calibrators = LoadedCalibrators(registry, ROOM, 60)
    over, queries = threading.Event(), []

    def hang(self: Registry) -> None:
        queries.append(1)
        assert over.wait(60)

    monkeypatch.setattr(Registry, "check", hang)
    settings = settings.model_copy(update={"load_seconds": 0.1})
    state = State(settings, registry, calibrators, Authenticator(registry, required=False))
    try:
        answer = readiness(state)
        assert (answer.ready, answer.registry) == (False, "unreachable")
        calibrators.load("m")
        answer = readiness(state)
        assert (answer.ready, answer.registry, answer.loaded) == (True, "unreachable", 1)
        assert "0.5 seconds" in answer.detail
        assert queries == [1]
    finally:
        over.set()
