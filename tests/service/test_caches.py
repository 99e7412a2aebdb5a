"""The clock cache, the negative cache and single flight."""

from __future__ import annotations

import threading
import time

import pytest

from recalib.errors import NotFoundError
from service.serving.clock_cache import ClockCache
from service.serving.negative_cache import NegativeCache
from service.single_flight import SingleFlight


class Value:
    def __init__(self, size: int) -> None:
        self.size, self.used = size, False


def test_clock_cache_evicts_unused_values_in_insertion_order() -> None:
    cache: ClockCache[str, Value] = ClockCache(3)
    values = {name: cache.put(name, Value(1)) for name in "abc"}
    assert cache.shrink(values["c"]) == []
    values["a"].used = True
    new = cache.put("d", Value(1))
    assert cache.shrink(new) == [values["b"]]
    assert [cache.get(name) is not None for name in "abcd"] == [True, False, True, True]
    assert cache.put("a", Value(1)) is cache.put("a", values["a"]) is values["a"]
    assert (cache.size, len(cache)) == (3, 3)
    for value in cache._values.values():
        value.used = True
    newest = cache.put("e", Value(1))
    assert len(cache.shrink(newest)) == 1
    assert cache.get("e") is newest  # the only unused value, but it is the one to keep
    large = cache.put("f", Value(9))
    cache.shrink(large)
    assert (cache.size, cache.get("f")) == (9, large)


def test_negative_cache_is_bounded() -> None:
    cache = NegativeCache()
    for number in range(6000):
        cache.put("m", str(number), NotFoundError("version", str(number)))
    cache.put("m" * 500, "1", NotFoundError("model", "m"))
    assert len(cache._errors) == 4096
    assert cache.get("m", "0") is None
    assert cache.get("m" * 500, "1") is None
    for _ in range(3):  # the traceback does not grow with each raise
        with pytest.raises(NotFoundError) as excinfo:
            cache.raise_if_fresh("m", "5999")
        assert len(excinfo.traceback) < 5


def test_single_flight_shares_calls_and_errors_and_limits_threads() -> None:
    calls: SingleFlight[int] = SingleFlight(2)
    started, release, order = threading.Semaphore(0), threading.Event(), []

    def slow(number: int) -> int:
        order.append(number)
        started.release()
        assert release.wait(60)
        if number == 1:
            raise KeyError(number)
        return number

    first = [calls.submit("a", lambda n=n: slow(n)) for n in (1, 2)]
    second, third = calls.submit("b", lambda: slow(3)), calls.submit("c", lambda: slow(4))
    assert first[0] is first[1]
    assert started.acquire(timeout=60)
    assert started.acquire(timeout=60)
    time.sleep(0.05)
    assert sorted(order) == [1, 3]
    assert first[0].cancel() is False
    release.set()
    assert (second.result(60), third.result(60)) == (3, 4)
    for future in first:
        with pytest.raises(KeyError):
            future.result(60)
    assert calls.submit("a", lambda: 5).result(60) == 5
