"""`python -m tests.faults.for_long`: random faults in a service under traffic, for minutes.

On each database in turn, a server with two processes is under traffic until 10,000 requests that
write are acknowledged. Meanwhile server, processes, worker and PostgreSQL are killed, stopped or
paused; between two faults there are up to 400 of these requests, on slow machines as on fast ones.
After each restart the service must keep the guarantees of the ledger. A key with a limit on
requests is used throughout: the two processes must hold its rate together. PostgreSQL is killed
just after a fit is acknowledged, which must then end after its restart. --seed repeats the order of
faults, not their exact moments.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from recalib.registry import CalibratorVersion, Registry
from tests.end_to_end.programs import Programs, Server, paused, until
from tests.faults.ledger import MODEL, Ledger, open_ledger
from tests.faults.rate import RateCheck
from tests.registry.fixtures import execute, start_postgresql

__all__ = ["main"]

#: Faults, with their weights. A server that is killed or stopped takes seconds to start again.
_FAULTS = {"process": 3, "worker": 3, "pause": 2, "postgresql": 2, "server": 1, "stop": 1}
_ENDS = ("server", "stop")
#: Acknowledged requests that write: of a run, and between two faults.
_REQUESTS, _BETWEEN_FAULTS = 10_000, (20, 400)
#: The longest time between two faults, for faults that the service does not recover from.
_MAX_SECONDS_BETWEEN_FAULTS = 90.0
#: On a busy machine the client may not reach its rate.
_MAX_DEVIATION, _MAX_SHORTFALL = 0.1, 0.3
#: Seconds without faults in which the rate is measured.
_STEADY_SECONDS = 20.0


@dataclass
class _Run:
    """The run on one database."""

    programs: Programs
    #: None: SQLite.
    postgresql: Any
    dice: random.Random
    ledger: Ledger
    faults: Counter[str] = field(default_factory=Counter)
    #: When PostgreSQL was killed, in seconds since the epoch.
    kills: list[float] = field(default_factory=list)
    #: Relative deviation from the limit: without faults, and the highest with faults.
    steady: float | None = None
    highest: float = -1.0


def main() -> int:
    """Print a report for each database; a broken guarantee raises an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--requests", type=int, default=_REQUESTS, help="acknowledged ones for each database"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    names = ["sqlite", "postgresql"] if options.database == "both" else [options.database]
    for name in names:
        _say(f"{name}, seed {seed}")
        with tempfile.TemporaryDirectory(prefix="recalib-faults-") as folder:
            programs = Programs(Path(folder))
            try:
                with (
                    _database(name, programs) as (url, postgresql),
                    open_ledger(url, programs) as ledger,
                ):
                    run = _Run(programs, postgresql, random.Random(seed), ledger)
                    _let_fail(run, url, options.requests)
            finally:
                programs.clean_up()
    return 0


@contextlib.contextmanager
def _database(name: str, programs: Programs) -> Iterator[tuple[str, Any]]:
    if name == "sqlite":
        yield f"sqlite:///{programs.home / 'recalib.db'}", None
        return
    with contextlib.contextmanager(start_postgresql)() as postgresql:
        execute(postgresql.get_uri(), "CREATE DATABASE faults")
        yield postgresql.get_uri("faults"), postgresql


def _let_fail(run: _Run, url: str, requests: int) -> None:
    begun, port, ledger = time.monotonic(), 0, run.ledger
    settings = {
        "database_url": url,
        "lease_seconds": 3,
        "flush_seconds": 0.1,
        "monitor_seconds": 3600,
        "workers": 2,
    }
    rate = RateCheck(ledger.registry)
    while sum(_acknowledged(ledger).values()) < requests:
        with run.programs.serve("--port", port, **settings) as server:
            port = urlsplit(server.url).port or 0
            ledger.check(server)
            if run.steady is None:
                with rate.demand(server):
                    time.sleep(_STEADY_SECONDS)
                run.steady = rate.deviation()
            with ledger.traffic(server, fits=True, volume=True), rate.demand(server):
                _let_server_fail(run, server)
            run.highest = max(run.highest, rate.deviation())
            assert ledger.wrong == [], ledger.wrong
            assert "Traceback" not in server.log(), server.log()
            if server.process.poll() is None:
                _stop(server)
        until(lambda: not run.programs.alive(), "the children to end")
        elapsed = time.monotonic() - begun
        _say(f"  {elapsed:4.0f} s: {dict(run.faults)}, {_acknowledged(ledger)}")
    with run.programs.serve("--port", port, **settings) as server:
        ledger.check(server)
        for fit in ledger.fits:
            server.finished(fit.content)
        of_jobs = [version.job_id for version in _versions(ledger.registry)]
        assert sorted(of_jobs[2:]) == sorted(fit.content for fit in ledger.fits)
        assert run.kills == [] or _fits_over_kills(run) > 0, "no fit ends after a restart"
        ledger.check(server)
        _stop(server)
    _report(run, time.monotonic() - begun)
    assert -_MAX_SHORTFALL <= (run.steady or 0.0) <= _MAX_DEVIATION
    assert run.highest <= _MAX_DEVIATION


def _let_server_fail(run: _Run, server: Server) -> None:
    """Cause faults until one of them ends the server."""
    names = [name for name in _FAULTS if run.postgresql or name != "postgresql"]
    fault = ""
    while fault not in _ENDS:
        _wait_for_requests(run.ledger, run.dice.randint(*_BETWEEN_FAULTS))
        fault = run.dice.choices(names, [_FAULTS[name] for name in names])[0]
        run.faults[fault] += 1
        _cause(fault, server, run)


def _wait_for_requests(ledger: Ledger, more: int) -> None:
    goal = sum(_acknowledged(ledger).values()) + more
    deadline = time.monotonic() + _MAX_SECONDS_BETWEEN_FAULTS
    while sum(_acknowledged(ledger).values()) < goal and time.monotonic() < deadline:
        time.sleep(0.1)


def _cause(fault: str, server: Server, run: _Run) -> None:
    if fault == "server":
        server.kill()
    elif fault == "stop":
        _stop(server)
    elif fault == "postgresql":
        fits = _acknowledged(run.ledger)["fits"]
        until(lambda: _acknowledged(run.ledger)["fits"] > fits or run.ledger.wrong, "a fit")
        run.kills.append(time.time())
        _kill_tree(psutil.Process(run.postgresql.get_pid()))
        time.sleep(run.dice.uniform(0.0, 3.0))
        run.postgresql.ensure_postgres_running()
    else:
        workers = until(lambda: server.children("worker"), "the embedded worker")
        processes = until(lambda: _processes(server), "a server process")
        with contextlib.suppress(psutil.NoSuchProcess):
            if fault == "worker":
                workers[0].kill()
            elif fault == "process":
                run.dice.choice(processes).kill()
            else:
                with paused(workers[0]), paused(processes[0]):
                    time.sleep(run.dice.uniform(0.1, 5.0))


def _processes(server: Server) -> list[psutil.Process]:
    """Return the processes that answer requests."""
    return server.children("--multiprocessing-fork")


def _kill_tree(process: psutil.Process) -> None:
    """kill -9; its children must end by themselves."""
    children = process.children(recursive=True)
    process.kill()
    _, alive = psutil.wait_procs([process, *children], 60)
    assert alive == []


def _stop(server: Server) -> None:
    status = server.stop()
    assert status == 0, f"ended with {status}: {server.log()}"


def _acknowledged(ledger: Ledger) -> dict[str, int]:
    """Return the number of acknowledged requests by what they write."""
    kinds = ("models", "promotions", "uploads", "fits", "labels")
    return {kind: sum(entry.acknowledged for entry in getattr(ledger, kind)) for kind in kinds}


def _fits_over_kills(run: _Run) -> int:
    """Return the number of fits that were requested before a kill and succeeded after it."""
    with run.ledger.registry.reading() as tx:
        fits = tx.jobs.page(tx.models.get(MODEL), "succeeded", None, 100_000, kind="fit")
    spans = [(fit.created_at, fit.finished_at or 0.0) for fit in fits]
    return sum(any(start < kill < end for kill in run.kills) for start, end in spans)


def _report(run: _Run, seconds: float) -> None:
    counts = _acknowledged(run.ledger)
    _say(f"  acknowledged requests that write in {seconds:.0f} s: {sum(counts.values())} {counts}")
    if run.postgresql:
        _say(f"  fits that ended after a restart of PostgreSQL: {_fits_over_kills(run)}")
    _say(
        f"  predictions: {run.ledger.predicted}; calibrators: {len(_versions(run.ledger.registry))}"
    )
    _say(f"  faults: {sum(run.faults.values())} {dict(run.faults)}")
    _say("  lost: 0, half published: 0, doubled: 0 (each would have ended the run)")
    _say(
        f"  limit of two processes: {run.steady:+.1%} without faults, at most {run.highest:+.1%} "
        "with faults"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _versions(registry: Registry) -> list[CalibratorVersion]:
    with registry.reading() as tx:
        return list(tx.calibrators.page(tx.models.get(MODEL), None, 100_000))


if __name__ == "__main__":
    sys.exit(main())
