"""The compared servers: how each is started, and its requests.

Peers run in separate environments in `.venv-peers`, made from pinned lists in `requirements`. Each
is set up for speed as its documentation recommends, without logs, metrics, tracing and batching if
they can be switched off. Recalib runs as `recalib serve`, with metrics.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.serving import wire
from benchmarks.serving.processes import free_port
from benchmarks.serving.wire import Request

SMALL, JSON, BINARY = "1x10 JSON", "32x1000 JSON", "32x1000 binary"

_HERE = Path(__file__).parent
_SERVERS = _HERE / "servers"
_ENVIRONMENTS = _HERE.parents[1] / ".venv-peers"

#: Shape of the logits of each case.
Batches = Mapping[str, NDArray[np.float32]]
Requests = dict[str, Request]


@dataclass(frozen=True)
class Contestant:
    """A server, and its requests.

    Parameters
    ----------
    command: returns the command line for an interpreter, a port, workers and a private folder.
    requests: the request of each supported case.
    packages: its list in `requirements`; empty to run it in this environment.
    """

    command: Callable[[Path, int, int, Path], list[str]]
    requests: Callable[[Batches], Requests]
    packages: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def installed(packages: str) -> Path:
    """Return an interpreter with the packages of a list, installed once for each content."""
    if not packages:
        return Path(sys.executable)
    requirements = _HERE / "requirements" / f"{packages}.txt"
    folder = _ENVIRONMENTS / packages
    interpreter, stamp = folder / "bin" / "python", folder / ".installed"
    digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if not (stamp.is_file() and stamp.read_text() == digest):
        print(f"installing {packages} into {folder} ...", file=sys.stderr, flush=True)
        uv = str(Path(sys.executable).with_name("uv"))
        for command in (
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "-q", "--python", str(interpreter), "-r", str(requirements)],
        ):
            subprocess.run(command, check=True)
        stamp.write_text(digest)
    return interpreter


def _recalib(python: Path, port: int, workers: int, folder: Path) -> list[str]:
    options = ["--port", str(port), "--workers", str(workers), "--job-workers", "0"]
    return [str(python), "-m", "recalib", "serve", *options, "--home", str(folder / "home")]


def _without_limits(python: Path, port: int, workers: int, folder: Path) -> list[str]:
    if workers > 1:
        raise RuntimeError("one process only")
    return [str(python), str(_SERVERS / "without_limits.py"), str(port), str(folder / "home")]


def _uvicorn(app: str) -> Callable[[Path, int, int, Path], list[str]]:
    def command(python: Path, port: int, workers: int, folder: Path) -> list[str]:
        place = ["--app-dir", str(_SERVERS), "--host", "127.0.0.1", "--port", str(port)]
        quiet = ["--workers", str(workers), "--log-level", "warning", "--no-access-log"]
        return [str(python), "-m", "uvicorn", app, *place, *quiet]

    return command


def _litserve(python: Path, port: int, workers: int, folder: Path) -> list[str]:
    return [str(python), str(_SERVERS / "with_litserve.py"), str(port), str(workers)]


def _kserve(python: Path, port: int, workers: int, folder: Path) -> list[str]:
    options = {
        "http_port": port,
        "workers": workers,
        "enable_grpc": "false",
        "enable_latency_logging": "false",
        "log_config_file": _SERVERS / "quiet.json",
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    return [str(python), str(_SERVERS / "with_kserve.py"), *arguments]


def _mlserver(python: Path, port: int, workers: int, folder: Path) -> list[str]:
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": free_port(),
        "metrics_endpoint": None,
        # One worker is the server itself; a pool of one adds a hop.
        "parallel_workers": 0 if workers == 1 else workers,
    }
    model = {"name": "calibrator", "implementation": "with_mlserver.Calibrator"}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(model))
    return [str(python.with_name("mlserver")), "start", str(folder)]


def _bentoml(python: Path, port: int, workers: int, folder: Path) -> list[str]:
    place = ["--host", "127.0.0.1", "--port", str(port), "--working-dir", str(_SERVERS)]
    # Its command line has no option for the number of workers.
    set_workers = ["env", f"WORKERS={workers}", f"BENTOML_HOME={folder}"]
    return [
        *set_workers,
        str(python.with_name("bentoml")),
        "serve",
        "with_bentoml:Calibrator",
        *place,
    ]


def _v1(batches: Batches, query: str = "") -> Requests:
    small, large = (f"/v1/models/of{classes}/calibrate{query}" for classes in (10, 1000))
    return {
        SMALL: wire.rows(small, batches[SMALL]),
        JSON: wire.rows(large, batches[JSON]),
        BINARY: wire.npy(large, batches[BINARY]),
    }


def _without_ids(batches: Batches) -> Requests:
    """Requests without prediction ids, which the other servers do not have."""
    return _v1(batches, "?ids=0")


def _v2(batches: Batches, small: str = "of10", large: str = "of1000") -> Requests:
    return {
        SMALL: wire.tensor(f"/v2/models/{small}/infer", batches[SMALL]),
        JSON: wire.tensor(f"/v2/models/{large}/infer", batches[JSON]),
        BINARY: wire.tensor_bytes(f"/v2/models/{large}/infer", batches[BINARY]),
    }


def _of_calibrator(batches: Batches) -> Requests:
    return _v2(batches, "calibrator", "calibrator")


def _without_bytes(batches: Batches) -> Requests:
    """MLServer reads bytes over gRPC only."""
    return {case: body for case, body in _of_calibrator(batches).items() if case != BINARY}


def _by_hand(json: str, binary: str) -> Callable[[Batches], Requests]:
    return lambda batches: {
        SMALL: wire.rows(json, batches[SMALL]),
        JSON: wire.rows(json, batches[JSON]),
        BINARY: wire.raw(binary, batches[BINARY]),
    }


def _litserve_requests(batches: Batches) -> Requests:
    upload = wire.file_upload("/bytes", batches[BINARY])
    return {**_by_hand("/rows", "")(batches), BINARY: upload}


def _bentoml_requests(batches: Batches) -> Requests:
    return {
        SMALL: wire.rows("/calibrate", batches[SMALL], answers=None),
        JSON: wire.rows("/calibrate", batches[JSON], answers=None),
        BINARY: wire.raw("/calibrate_bytes", batches[BINARY]),
    }


def bare_requests(batches: Batches) -> Requests:
    """The requests of Recalib, to the handler that answers with Recalib's responses."""
    return {
        case: replace(request, path=f"/bytes/{case.replace(' ', '-')}")
        for case, request in _v1(batches).items()
    }


OURS, BARE, ENDPOINT = "recalib", "bare ASGI", "FastAPI"
NO_LIMITS = "recalib, no limits"
#: The peers of the goal at one row.
MODEL_SERVERS = ("LitServe", "KServe", "MLServer", "BentoML")

#: Recalib first, because the bare handler answers with its responses.
CONTESTANTS = {
    OURS: Contestant(_recalib, _v1),
    "recalib, no ids": Contestant(_recalib, _without_ids),
    "recalib, V2": Contestant(_recalib, _v2),
    NO_LIMITS: Contestant(_without_limits, _v1),
    BARE: Contestant(_uvicorn("with_nothing:app"), bare_requests),
    "bare, and the work": Contestant(
        _uvicorn("with_nothing:app"), _by_hand("/json", "/binary/1000")
    ),
    ENDPOINT: Contestant(
        _uvicorn("with_fastapi:app"), _by_hand("/calibrate", "/binary/1000"), "fastapi"
    ),
    "LitServe": Contestant(_litserve, _litserve_requests, "litserve"),
    "KServe": Contestant(_kserve, _of_calibrator, "kserve"),
    "MLServer": Contestant(_mlserver, _without_bytes, "mlserver", {"PYTHONPATH": str(_SERVERS)}),
    "BentoML": Contestant(_bentoml, _bentoml_requests, "bentoml", {"BENTOML_DO_NOT_TRACK": "True"}),
}
