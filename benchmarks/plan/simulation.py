"""Discrete-event simulations of servers, a database, workers and clusters, with SimPy.

`benchmarks.plan` gives them measured costs. They model processors and networks as queues with
first come, first served. They do not model disks, locks, failures or the memory of a machine.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import simpy

_Events = Generator[simpy.Event, Any, None]


class Step(NamedTuple):
    """A visit of a resource."""

    resource: str
    #: Mean time that the visit occupies one unit of the resource.
    seconds: float


@dataclass(frozen=True)
class Kind:
    """A kind of request; requests arrive as a Poisson process."""

    name: str
    per_second: float
    #: In order; the client waits for these.
    steps: Sequence[Step]
    #: In order, after the answer.
    later: Sequence[Step] = ()
    #: Standard deviation of the time of a visit over its mean; the times have a gamma distribution.
    variation: float = 0.0


@dataclass(frozen=True)
class Result:
    """What a simulation shows."""

    #: Share of the units of each resource that is in use.
    utilisation: Mapping[str, float]
    #: Seconds from arrival to answer, by the kind of request.
    latencies: Mapping[str, np.ndarray]
    #: Seconds from arrival to the end of the simulation, of requests without an answer.
    ages: Mapping[str, np.ndarray]


def simulate(
    units: Mapping[str, int], kinds: Sequence[Kind], seconds: float, seed: int = 0
) -> Result:
    """Simulate requests for some seconds, from an idle system.

    Parameters
    ----------
    units: the number of processors of each resource.

    Examples
    --------
    >>> one = Kind("request", 50.0, [Step("server", 0.01)], variation=1.0)
    >>> result = simulate({"server": 1}, [one], 1_000.0)
    >>> round(float(result.latencies["request"].mean()), 2)  # .01 / (1 - .5)
    0.02
    """
    rng = np.random.default_rng(seed)
    environment = simpy.Environment()
    resources = {name: simpy.Resource(environment, number) for name, number in units.items()}
    busy = dict.fromkeys(units, 0.0)
    latencies: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    open_since: dict[str, dict[int, float]] = {kind.name: {} for kind in kinds}

    def visit(step: Step, variation: float) -> _Events:
        resource = resources[step.resource]
        with resource.request() as turn:
            yield turn
            duration = step.seconds
            if variation:
                duration *= rng.gamma(variation**-2, variation**2)
            # Only the part inside the simulation counts.
            busy[step.resource] += min(duration, seconds - environment.now)
            yield environment.timeout(duration)

    def request(kind: Kind, number: int) -> _Events:
        open_since[kind.name][number] = environment.now
        for step in kind.steps:
            yield from visit(step, kind.variation)
        latencies[kind.name].append(environment.now - open_since[kind.name].pop(number))
        for step in kind.later:
            yield from visit(step, kind.variation)

    def arrivals(kind: Kind) -> _Events:
        for number in count():
            yield environment.timeout(rng.exponential(1 / kind.per_second))
            environment.process(request(kind, number))

    for kind in kinds:
        environment.process(arrivals(kind))
    environment.run(seconds)
    return Result(
        {name: busy[name] / (seconds * number) for name, number in units.items()},
        {name: np.array(values) for name, values in latencies.items()},
        {name: seconds - np.array(list(times.values())) for name, times in open_since.items()},
    )


@dataclass(frozen=True)
class Pass:
    """A pass over all fragments of a data set."""

    #: Bytes and processor seconds of each fragment.
    bytes: float
    seconds: float
    #: Processor seconds of the driver for the state of a fragment.
    merge_seconds: float


def elapsed(
    work: Pass, fragments: int, machines: int, cores: int, bytes_per_second: float
) -> tuple[float, dict[str, float]]:
    """Simulate a pass over fragments; return the seconds and the utilisation of the resources.

    Each machine reads over its network and computes on its cores; other fragments are read while
    one is computed. The driver merges the states one by one.

    Examples
    --------
    >>> elapsed(Pass(0.0, 2.0, 0.0), 8, machines=2, cores=2, bytes_per_second=1.0)[0]
    4.0
    """
    environment = simpy.Environment()
    networks = [simpy.Resource(environment, 1) for _ in range(machines)]
    processors = [simpy.Resource(environment, cores) for _ in range(machines)]
    driver = simpy.Resource(environment, 1)
    busy = {"network": 0.0, "cores": 0.0, "driver": 0.0}

    def hold(resource: simpy.Resource, name: str, seconds: float) -> _Events:
        with resource.request() as turn:
            yield turn
            busy[name] += seconds
            yield environment.timeout(seconds)

    def fragment(machine: int) -> _Events:
        yield from hold(networks[machine], "network", work.bytes / bytes_per_second)
        yield from hold(processors[machine], "cores", work.seconds)
        yield from hold(driver, "driver", work.merge_seconds)

    for index in range(fragments):
        environment.process(fragment(index % machines))
    environment.run()
    total = environment.now
    units = {"network": machines, "cores": machines * cores, "driver": 1}
    return total, {name: busy[name] / (total * units[name]) for name in units}
