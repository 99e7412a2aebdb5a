"""Servers side by side: started, verified, and asked in turns.

`wrk` keeps a number of connections busy, each asking again as soon as it is answered; so latencies
are those of a full server, and a server that answers twice as often has half of them. On a machine
whose cores are shared, requests per second are worth what their ratio to another server's of the
same round is worth; processor time for one request is steadier.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import scipy.special
from numpy.typing import NDArray

from benchmarks.serving.contestants import (
    BINARY,
    CONTESTANTS,
    JSON,
    OURS,
    SMALL,
    Contestant,
    installed,
)
from benchmarks.serving.processes import Tree, free_port, running, until
from benchmarks.serving.wire import Request

__all__ = ["CONNECTIONS", "Measured", "Trial", "batches", "cases", "measure", "median", "wrong"]

_POST = Path(__file__).with_name("post.lua")
#: Enough that each of two processes gets some of them.
CONNECTIONS = 16
#: Different bodies of each case.
_VARIANTS = 40

Batches = dict[str, NDArray[np.float32]]

cases = (SMALL, JSON, BINARY)


@dataclass(frozen=True)
class Trial:
    """What one run of `wrk` found."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    #: Processor time of all of the server's processes for one request.
    cpu_microseconds: float
    resident_mib: float


#: Trials by case and contestant, one a round.
Measured = dict[str, dict[str, list[Trial]]]


@dataclass(frozen=True)
class _Server:
    url: str
    tree: Tree
    #: For each case, the requests that `wrk` sends in turns, in a file for `post.lua`.
    files: dict[str, Path]
    #: For each case, the first of them.
    requests: dict[str, Request]


def batches(seed: int = 0) -> Batches:
    """Return logits for each case.

    Other seeds give other numbers, other lengths of JSON, and for `BINARY` another number of rows.
    """
    rng = np.random.default_rng(seed)
    shapes = {SMALL: (1, 10), JSON: (32, 1000), BINARY: (32 + (seed % 5 - 2) * (seed > 0), 1000)}
    logits = {case: (rng.normal(size=n) * 3).astype(np.float32) for case, n in shapes.items()}
    if seed:  # fewer digits shorten the text
        for case in (SMALL, JSON):
            logits[case] = logits[case].round(2 + seed % 6)
    return logits


def measure(
    names: Sequence[str],
    home: Path,
    temperatures: dict[int, float],
    folder: Path,
    *,
    workers: int,
    rounds: int,
    seconds: int,
    connections: int = CONNECTIONS,
) -> Measured:
    """Start all servers, check what they answer, and load them in turns.

    Parameters
    ----------
    names: keys of `CONTESTANTS`; ours must be the first.
    home: of a Recalib server that has a champion for each number of classes.
    temperatures: the champions', by number of classes.
    folder: for logs, answers and the servers' own files.
    """
    found: Measured = {case: {name: [] for name in names} for case in cases}
    answers = folder / "answers"
    answers.mkdir(parents=True)
    environment = {
        "TEMPERATURES": json.dumps(temperatures),
        "ANSWERS": str(answers),
        "OMP_NUM_THREADS": "1",
        # Ours is the only one that reads it.
        "RECALIB_GRPC_PORT": "0",
    }
    with contextlib.ExitStack() as stack:
        servers = {}
        for name in names:
            own = folder / name.replace(" ", "-")
            own.mkdir()
            if CONTESTANTS[name].command is CONTESTANTS[OURS].command:
                shutil.copytree(home, own / "home")
            try:
                started = _started(name, CONTESTANTS[name], own, workers, environment, temperatures)
                servers[name] = stack.enter_context(started)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                if name == OURS:
                    raise
                print(f"{name}: left out: {error}", file=sys.stderr, flush=True)
                continue
            if name == OURS:
                _keep_answers(servers[name], answers)
        for at in range(rounds):
            for case in cases:
                # Another one first each round, lest the first always pays for something.
                turn = list(servers)
                turn = turn[at % len(turn) :] + turn[: at % len(turn)]
                for name in turn:
                    if case in servers[name].requests:
                        found[case][name] += _turn(name, servers[name], case, seconds, connections)
    return {
        case: {name: trials for name, trials in of_case.items() if trials}
        for case, of_case in found.items()
    }


@contextlib.contextmanager
def _started(
    name: str,
    contestant: Contestant,
    folder: Path,
    workers: int,
    environment: dict[str, str],
    temperatures: dict[int, float],
) -> Iterator[_Server]:
    """Run a server that has given the right answer to every request."""
    logits = batches()
    port = free_port()
    variants = [contestant.requests(batches(seed)) for seed in range(_VARIANTS)]
    requests, files = variants[0], {}
    for case in requests:
        files[case] = folder / case.replace(" ", "-")
        files[case].write_bytes(b"".join(_raw(one[case], port) for one in variants))
    command = contestant.command(installed(contestant.packages), port, workers, folder)
    with (
        running(command, folder, {**environment, **contestant.environment}) as tree,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        for case, request in requests.items():
            until(lambda request=request: _answers(client, request), tree, name)  # type: ignore[misc]
            problem = wrong(_numbers(client, request), logits[case], temperatures)
            if problem:
                raise RuntimeError(f"{name}, {case}: {problem}")
        yield _Server(f"http://127.0.0.1:{port}", tree, files, requests)


def wrong(
    numbers: NDArray[np.floating], logits: NDArray[np.float32], temperatures: dict[int, float]
) -> str:
    """Say what is wrong with an answer, if anything: it must be softmax(logits / T)."""
    expected = scipy.special.softmax(
        logits.astype(np.float64) / temperatures[logits.shape[1]], axis=1
    )
    if numbers.size != expected.size:
        return f"{numbers.size} numbers, not {expected.size}"
    # A class at −10 has 1e-6 of the probability, and float32 seven digits of the logit.
    apart = np.abs(numbers.reshape(expected.shape) - expected) / expected
    return "" if apart.max() < 1e-5 else f"probabilities are off by {apart.max():.1e} of themselves"


def _raw(request: Request, port: int) -> bytes:
    """Return a request as `post.lua` reads it; it inserts the trace id."""
    headers = {
        "Host": f"127.0.0.1:{port}",
        "User-Agent": "wrk",
        **request.headers,
        "Content-Length": str(len(request.body)),
        "traceparent": "00-",
    }
    lines = [f"POST {request.path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    before = "\r\n".join(lines).encode()
    after = b"-00f067aa0ba902b7-00\r\n\r\n" + request.body
    return b"%d %d\n" % (len(before), len(after)) + before + after


def _answers(client: httpx2.Client, request: Request) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return _post(client, request).status_code == 200
    return False


def _post(client: httpx2.Client, request: Request) -> httpx2.Response:
    return client.post(request.path, content=request.body, headers=request.headers)


def _numbers(client: httpx2.Client, request: Request) -> NDArray[np.floating]:
    answer = _post(client, request)
    answer.raise_for_status()
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return request.numbers((headers, answer.content))


def _keep_answers(server: _Server, folder: Path) -> None:
    for case, request in server.requests.items():
        with httpx2.Client(base_url=server.url, timeout=60) as client:
            content = _post(client, request).content
        (folder / case.replace(" ", "-")).write_bytes(content)


def _turn(name: str, server: _Server, case: str, seconds: int, connections: int) -> list[Trial]:
    """Return a trial, or none where a peer has failed: that is its affair, and the others go on."""
    try:
        return [_trial(server, case, seconds, connections)]
    except RuntimeError as error:
        if name == OURS:
            raise
        print(f"{name}, {case}: one round left out: {error}", file=sys.stderr, flush=True)
        return []


def _trial(server: _Server, case: str, seconds: int, connections: int) -> Trial:
    """Load one server with the requests of a case, in turns."""
    request = server.requests[case]
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
    command += ["-s", str(_POST), server.url + request.path, "--", str(server.files[case])]
    before = server.tree.cpu_seconds()
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = server.tree.cpu_seconds() - before
    told = json.loads(text.splitlines()[-1])
    if told["failed"] or not told["requests"]:
        raise RuntimeError(f"{request.path}: {text}\n{server.tree.log.read_text()[-3000:]}")
    return Trial(
        requests_per_second=told["requests"] / told["microseconds"] * 1e6,
        p50_ms=told["p50"] / 1000,
        p99_ms=told["p99"] / 1000,
        cpu_microseconds=used / told["requests"] * 1e6,
        resident_mib=server.tree.resident_bytes() / 2**20,
    )


def median(trials: Sequence[Trial], what: str) -> float:
    """Return the median over rounds of one of a trial's numbers."""
    return statistics.median(getattr(trial, what) for trial in trials)
