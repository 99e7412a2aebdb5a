"""`python -m tests.faults.for_long`: random faults in a service under traffic, for minutes.

On each database in turn, the server or its worker is killed, or both are paused. After each fault
the service must recover, and keep the guarantees of the ledger. --seed repeats the order of faults,
not their exact moments.
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
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from recalib.registry import CalibratorVersion, Registry
from tests.end_to_end.programs import Programs, Server, paused, until
from tests.faults.ledger import open_ledger
from tests.registry.fixtures import execute, start_postgresql

__all__ = ["main"]

_KINDS = ("server", "worker", "pause", "stop")


def main() -> int:
    """Print a line for each server run; a broken guarantee raises an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
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
                with _database(name, programs) as url:
                    _run(programs, url, random.Random(seed), options.minutes * 60 / len(names))
            finally:
                programs.clean_up()
    return 0


@contextlib.contextmanager
def _database(name: str, programs: Programs) -> Iterator[str]:
    if name == "sqlite":
        yield f"sqlite:///{programs.home / 'recalib.db'}"
        return
    with contextlib.contextmanager(start_postgresql)() as postgresql:
        execute(postgresql.get_uri(), "CREATE DATABASE faults")
        yield postgresql.get_uri("faults")


def _run(programs: Programs, url: str, dice: random.Random, seconds: float) -> None:
    with open_ledger(url, programs) as ledger:
        settings = {"database_url": url, "lease_seconds": 3, "flush_seconds": 0.1}
        over, port, faults = time.monotonic() + seconds, 0, Counter[str]()
        while time.monotonic() < over:
            with programs.serve("--port", port, **settings) as server:
                port = urlsplit(server.url).port or 0
                ledger.check(server)
                with ledger.traffic(server, fits=True):
                    kind = ""
                    while kind not in ("server", "stop") and time.monotonic() < over:
                        time.sleep(dice.uniform(0.5, 6.0))
                        kind = dice.choice(_KINDS)
                        faults[kind] += 1
                        _happen(kind, server, dice)
                assert ledger.wrong == [], ledger.wrong
                assert "Traceback" not in server.log(), server.log()
                if server.process.poll() is None:
                    _stops(server)
            until(lambda: not programs.alive(), "the children to end")
            logs = (ledger.uploads, ledger.promotions, ledger.labels, ledger.fits)
            acknowledged = [sum(entry.acknowledged for entry in entries) for entries in logs]
            _say(f"  {dict(faults)}: {acknowledged} and {ledger.predicted} predictions stand")
        with programs.serve("--port", port, **settings) as server:
            ledger.check(server)
            for fit in ledger.fits:
                server.finished(fit.content)
            of_jobs = [version.job_id for version in _versions(ledger.registry)]
            assert sorted(of_jobs[2:]) == sorted(fit.content for fit in ledger.fits)
            _stops(server)


def _happen(kind: str, server: Server, dice: random.Random) -> None:
    if kind == "server":
        server.kill()
    elif kind == "stop":
        _stops(server)
    else:
        worker = until(lambda: server.children("worker"), "the embedded worker")[0]
        with contextlib.suppress(psutil.NoSuchProcess):
            if kind == "worker":
                worker.kill()
            else:
                with paused(worker), paused(psutil.Process(server.pid)):
                    time.sleep(dice.uniform(0.1, 5.0))


def _stops(server: Server) -> None:
    status = server.stop()
    assert status == 0, f"ended with {status}: {server.log()}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _versions(registry: Registry) -> list[CalibratorVersion]:
    with registry.reading() as tx:
        return list(tx.calibrators.page(tx.models.get("digits"), None, 100_000))


if __name__ == "__main__":
    sys.exit(main())
