"""The simulation of plans agrees with closed forms."""

from __future__ import annotations

import pytest

from benchmarks.plan.costs import Costs
from benchmarks.plan.simulation import Kind, Pass, Step, elapsed, simulate
from benchmarks.plan.tables import needs, planned


@pytest.mark.slow
def test_one_server_has_the_delays_of_queueing_theory() -> None:
    """M/M/1: the time in the system is exponential with mean s / (1 - ρ)."""
    kind = Kind("request", 70.0, [Step("server", 0.01)], variation=1.0)
    result = simulate({"server": 1}, [kind], 500.0)
    latencies = result.latencies["request"]
    # 35,000 dependent draws; the mean of independent runs varies by 3%.
    assert latencies.mean() == pytest.approx(0.01 / 0.3, rel=0.15)
    assert (latencies > 0.01 / 0.3).mean() == pytest.approx(0.368, abs=0.05)
    assert result.utilisation["server"] == pytest.approx(0.7, abs=0.03)


def test_more_load_than_a_server_has_waits() -> None:
    """A server with twice its load is busy, and half of the requests have no answer."""
    kind = Kind("request", 200.0, [Step("server", 0.01)])
    result = simulate({"server": 1}, [kind], 20.0)
    answers, open_requests = len(result.latencies["request"]), len(result.ages["request"])
    assert result.utilisation["server"] > 0.99
    assert answers == pytest.approx(2_000, rel=0.01)
    assert open_requests == pytest.approx(2_000, rel=0.15)


def test_steps_after_the_answer_do_not_delay_it() -> None:
    """They occupy their resource only."""
    kind = Kind("labels", 1.0, [Step("server", 0.1)], [Step("worker", 0.5)])
    result = simulate({"server": 10, "worker": 1}, [kind], 1_000.0)
    assert result.latencies["labels"] == pytest.approx(0.1)
    assert result.utilisation["worker"] == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(
    ("work", "seconds", "busiest"),
    [
        (Pass(0.0, 2.0, 0.0), 8.0, "cores"),  # 16 fragments on four cores
        (Pass(3.0, 1.0, 0.0), 25.0, "network"),  # 8 fragments for each, and the last is computed
        (Pass(0.0, 1.0, 2.0), 33.0, "driver"),
    ],
)
def test_passes_take_as_long_as_their_bottleneck(work: Pass, seconds: float, busiest: str) -> None:
    """Two machines of two cores and one byte a second read 16 fragments."""
    total, busy = elapsed(work, 16, machines=2, cores=2, bytes_per_second=1.0)
    assert total == pytest.approx(seconds)
    assert max(busy, key=busy.__getitem__) == busiest


def test_plan_leaves_forty_percent_free() -> None:
    """The planned cores are the fewest with at most 60% in use."""
    costs = Costs(100e-6, 80.0, 40e-6, 10e-6, 5e-6, 120.0)
    need = needs(costs, 10_000.0, 100_000.0)
    assert need["server"] == pytest.approx(1.0 + 4.0)
    assert need["bytes"] == pytest.approx(800_000 + 12_000_000)
    assert planned(costs, 10_000.0, 100_000.0) == (9, 2, 1)
