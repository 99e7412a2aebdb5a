"""Serving one row of 10 classes as JSON: against a bare ASGI handler that returns the same bytes.

Both run under uvicorn, one process each, one after the other in turns; wrk (Debian's package of
that name) asks from 8 connections. The bare handler reads the request's body and answers a
constant: no server in Python that parses and computes can be faster.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from benchmarks.timing import Goal
from recalib.demo import wait_until_ready
from tests.service.conftest import npz

__all__ = ["run"]

_ROUNDS, _SECONDS, _CONNECTIONS = 5, 3, 8
_ROW = [[1.5, -0.25, 3.125, 0.5, 2.0, -1.75, 0.875, 4.5, -2.25, 0.125]]

_BARE = """
import sys, uvicorn
ANSWER = sys.argv[1].encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def run() -> list[Goal]:
    """Measure requests per second of both."""
    if shutil.which("wrk") is None:
        print("serving: skipped, wrk is not installed (apt-get install wrk)")
        return []
    with tempfile.TemporaryDirectory() as folder, _ours(Path(folder)) as url:
        body = json.dumps({"logits": _ROW})
        answer = httpx2.post(url, content=body, headers={"Content-Type": "application/json"})
        answer.raise_for_status()
        with _bare(answer.text) as bare:
            script = _script(Path(folder), body)
            rates: dict[str, list[float]] = {"bare": [], "ours": []}
            for _ in range(_ROUNDS):
                rates["bare"].append(_ask(bare, script))
                rates["ours"].append(_ask(url, script))
    ours, peer = statistics.median(rates["ours"]), statistics.median(rates["bare"])
    detail = f"; {ours:.0f} against {peer:.0f} requests a second"
    return [Goal("REST 1x10 JSON over a bare ASGI handler", ours / peer, 1 / 3, False, detail)]


@contextlib.contextmanager
def _ours(home: Path) -> Iterator[str]:
    """A server with a champion; yields the URL to calibrate at."""
    command = [sys.executable, "-m", "recalib.cli", "serve", "--port", "0", "--json"]
    with _process([*command, "--home", str(home)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        wait_until_ready(url, process)
        rng = np.random.default_rng(0)
        logits = (rng.normal(size=(500, 10)) * 3).astype(np.float32)
        with httpx2.Client(base_url=f"{url}/v1", timeout=60) as client:
            client.post("/models", json={"name": "m", "classes": 10}).raise_for_status()
            body, kind = npz(logits, rng.integers(0, 10, 500)), "application/x-npz"
            client.put("/models/m/datasets/d", content=body, headers={"Content-Type": kind})
            client.post("/models/m/calibrators", json={"dataset": "d", "promote": True})
            while client.get("/models/m/aliases").json()["items"] == []:
                time.sleep(0.1)
        yield f"{url}/v1/models/m/calibrate"


@contextlib.contextmanager
def _bare(answer: str) -> Iterator[str]:
    port = 18_999
    url = f"http://127.0.0.1:{port}/"
    with _process([sys.executable, "-c", _BARE, answer, str(port)]):
        for _ in range(200):
            with contextlib.suppress(httpx2.TransportError):
                httpx2.post(url)
                break
            time.sleep(0.05)
        yield url


@contextlib.contextmanager
def _process(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _script(folder: Path, body: str) -> Path:
    path = folder / "post.lua"
    path.write_text(
        f'wrk.method = "POST"\nwrk.body = [=[{body}]=]\n'
        'wrk.headers["Content-Type"] = "application/json"\n'
    )
    return path


def _ask(url: str, script: Path) -> float:
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{_SECONDS}s", "-s", str(script), url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text:
        raise RuntimeError(text)
    match = re.search(r"Requests/sec:\s*([\d.]+)", text)
    if match is None:
        raise RuntimeError(text)
    return float(match[1])
