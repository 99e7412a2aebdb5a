"""What loading calibrators is made of: things in bounded room, absences, and calls on threads."""

from __future__ import annotations

import threading
import time

import pytest

from recalib.errors import NotFoundError
from service.predict.clock_cache import Bounded
from service.predict.negative_cache import Absent
from service.predict.single_flight import Flights


class Thing:
    def __init__(self, size: int) -> None:
        self.size, self.used = size, False


def test_the_clock() -> None:
    """Unused ones go first, in the order in which they came."""
    things: Bounded[str, Thing] = Bounded(3)
    made = {name: things.put(name, Thing(1)) for name in "abc"}
    assert things.shrink(made["c"]) == []
    made["a"].used = True
    new = things.put("d", Thing(1))
    assert things.shrink(new) == [made["b"]]
    assert [things.get(name) is not None for name in "abcd"] == [True, False, True, True]
    assert things.put("a", Thing(1)) is things.put("a", made["a"]) is made["a"]
    assert (things.size, len(things)) == (3, 3)
    for value in things._values.values():
        value.used = True
    newest = things.put("e", Thing(1))
    assert len(things.shrink(newest)) == 1
    assert things.get("e") is newest  # though it is the only one that nobody has used yet
    large = things.put("f", Thing(9))
    things.shrink(large)
    assert (things.size, things.get("f")) == (9, large)


def test_absences_do_not_fill_the_memory() -> None:
    known = Absent()
    for i in range(6000):
        known.note("m", str(i), NotFoundError("version", str(i)))
    known.note("m" * 500, "1", NotFoundError("model", "m"))
    assert len(known._errors) == 4096
    assert known.last("m", "0") is None
    assert known.last("m" * 500, "1") is None
    for _ in range(3):  # raised again and again, it does not grow
        with pytest.raises(NotFoundError) as caught:
            known.refuse("m", "5999")
        assert len(caught.traceback) < 5


def test_flights() -> None:
    """One at a time for each key, so many threads and no more, errors for all who wait."""
    flights: Flights[int] = Flights(2)
    begun, over, order = threading.Semaphore(0), threading.Event(), []

    def slow(number: int) -> int:
        order.append(number)
        begun.release()
        assert over.wait(60)
        if number == 1:
            raise KeyError(number)
        return number

    first = [flights.of("a", lambda n=n: slow(n)) for n in (1, 2)]
    second, third = flights.of("b", lambda: slow(3)), flights.of("c", lambda: slow(4))
    assert first[0] is first[1]
    assert begun.acquire(timeout=60)
    assert begun.acquire(timeout=60)
    time.sleep(0.05)
    assert sorted(order) == [1, 3]
    assert first[0].cancel() is False
    over.set()
    assert (second.result(60), third.result(60)) == (3, 4)
    for one in first:
        with pytest.raises(KeyError):
            one.result(60)
    assert flights.of("a", lambda: 5).result(60) == 5
