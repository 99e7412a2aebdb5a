"""Workers: order, errors, and processes that end."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from recalib.errors import InputError, UnavailableError
from recalib.executors import open_workers


def _square(x: int) -> int:
    if x < 0:
        raise InputError("x", found=str(x), accepted="0 or more")
    return x * x


def _die_once(item: tuple[int, str]) -> int:
    """Kill this process the first time."""
    number, marker = item
    if number == 2 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("cluster", [None, "threads:3"])
def test_results_come_in_order(cluster: str | None) -> None:
    with open_workers(cluster) as workers:
        assert list(workers.map(_square, range(20))) == [x * x for x in range(20)]


def test_first_error_ends_the_iteration_and_cancels_the_rest() -> None:
    calls = []

    def count(x: int) -> int:
        calls.append(x)
        return _square(x)

    with open_workers() as workers, pytest.raises(InputError, match="found -1"):
        list(workers.map(count, [-1, *range(1000)]))
    assert len(calls) <= 3


def test_few_items_are_taken_ahead() -> None:
    taken = []

    def items() -> Iterator[int]:
        for x in range(100):
            taken.append(x)
            yield x

    with open_workers("threads:2") as workers:
        results = workers.map(_square, items())
        next(results)
        assert len(taken) <= 5
        results.close()  # type: ignore[attr-defined]
    assert threading.active_count() < 20


@pytest.mark.parametrize("text", ["", "local", "local:0", "local:x", "threads:99999", "ssh:2"])
def test_unknown_cluster_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="cluster: found"), open_workers(text):
        pass


@pytest.mark.slow
def test_killed_process_of_a_pool_is_an_error(tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "marker")) for number in range(4)]
    with (
        pytest.raises(UnavailableError, match="a worker process ended"),
        open_workers("processes:1") as workers,
    ):
        list(workers.map(_die_once, items))


@pytest.mark.slow
def test_cluster_repeats_the_work_of_a_killed_worker(tmp_path: Path) -> None:
    items = [(number, str(tmp_path / "marker")) for number in range(6)]
    with open_workers("local:2") as workers:
        assert list(workers.map(_die_once, items)) == list(range(6))
        with pytest.raises(InputError, match="found -1"):
            list(workers.map(_square, [1, -1]))
    assert (tmp_path / "marker").exists()
