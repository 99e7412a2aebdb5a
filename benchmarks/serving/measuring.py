"""Start servers, verify their answers, and load them in turns.

`wrk` sends the next request on each connection as soon as the last is answered. Latencies are thus
those of a saturated server: twice the throughput means half the latency. On shared cores, only
ratios of requests per second within a round are meaningful; processor time per request varies less.
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

_POST = Path(__file__).with_name("post.lua")
#: Enough for each of two processes to get some.
CONNECTIONS = 16
#: Number of different bodies per case.
_VARIANTS = 40

Batches = dict[str, NDArray[np.float32]]

CASES = (SMALL, JSON, BINARY)


@dataclass(frozen=True)
class Trial:
    """The result of one run of `wrk`."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    #: Processor time per request, over all processes of the server.
    cpu_microseconds: float
    resident_mib: float


#: Trials by case and contestant, one per round.
Measured = dict[str, dict[str, list[Trial]]]


@dataclass(frozen=True)
class _Server:
    url: str
    tree: Tree
    #: For each case, a file for `post.lua` with the requests that `wrk` sends in turns.
    files: dict[str, Path]
    #: For each case, the first request.
    requests: dict[str, Request]


def batches(seed: int = 0) -> Batches:
    """Return logits for each case.

    The seed determines the numbers, the length of the JSON, and for `BINARY` the number of rows.
    """
    rng = np.random.default_rng(seed)
    shapes = {SMALL: (1, 10), JSON: (32, 1000), BINARY: (32 + (seed % 5 - 2) * (seed > 0), 1000)}
    logits = {case: (rng.normal(size=n) * 3).astype(np.float32) for case, n in shapes.items()}
    if seed:  # fewer digits give a shorter text
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
    cases: Sequence[str] = CASES,
) -> Measured:
    """Start all servers, verify their answers, and load them in turns.

    Parameters
    ----------
    names: keys of `CONTESTANTS`; ours must be the first.
    home: a Recalib home with a champion for each number of classes.
    temperatures: of the champions, by number of classes.
    folder: for logs, answers and files of the servers.
    """
    results: Measured = {case: {name: [] for name in names} for case in cases}
    answers = folder / "answers"
    answers.mkdir(parents=True)
    environment = {
        "TEMPERATURES": json.dumps(temperatures),
        "ANSWERS": str(answers),
        "OMP_NUM_THREADS": "1",
        # Only Recalib reads it.
        "RECALIB_GRPC_PORT": "0",
    }
    with contextlib.ExitStack() as stack:
        servers = {}
        for name in names:
            trial_folder = folder / name.replace(" ", "-")
            trial_folder.mkdir()
            if name.startswith(OURS):
                shutil.copytree(home, trial_folder / "home")
            try:
                started = _started(
                    name, CONTESTANTS[name], trial_folder, workers, environment, temperatures
                )
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
                # The first server rotates, because the first position may be a disadvantage.
                turn = list(servers)
                turn = turn[at % len(turn) :] + turn[: at % len(turn)]
                for name in turn:
                    if case in servers[name].requests:
                        results[case][name] += _turn(
                            name, servers[name], case, seconds, connections
                        )
    return {
        case: {name: trials for name, trials in of_case.items() if trials}
        for case, of_case in results.items()
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
    """Run a server and verify its answer to every request."""
    logits = batches()
    port = free_port()
    variants = [contestant.requests(batches(seed)) for seed in range(_VARIANTS)]
    requests, files = variants[0], {}
    for case in requests:
        files[case] = folder / case.replace(" ", "-")
        files[case].write_bytes(b"".join(_raw(bodies[case], port) for bodies in variants))
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
    """Return what is wrong with an answer, or an empty string: it must be softmax(logits / T)."""
    expected = scipy.special.softmax(
        logits.astype(np.float64) / temperatures[logits.shape[1]], axis=1
    )
    if numbers.size != expected.size:
        return f"{numbers.size} numbers, not {expected.size}"
    # A class with logit −10 has probability 1e-6, and float32 has seven digits of the logit.
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
    """Return a trial, or none if a peer has failed; the others continue."""
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
    counts = json.loads(text.splitlines()[-1])
    if counts["failed"] or not counts["requests"]:
        raise RuntimeError(f"{request.path}: {text}\n{server.tree.log.read_text()[-3000:]}")
    return Trial(
        requests_per_second=counts["requests"] / counts["microseconds"] * 1e6,
        p50_ms=counts["p50"] / 1000,
        p99_ms=counts["p99"] / 1000,
        cpu_microseconds=used / counts["requests"] * 1e6,
        resident_mib=server.tree.resident_bytes() / 2**20,
    )


def median(trials: Sequence[Trial], field: str) -> float:
    """Return the median of a field of the trials over rounds."""
    return statistics.median(getattr(trial, field) for trial in trials)
