"""`recalib demo`: the complete workflow on real data, with a server and a worker.

A small network is trained on scikit-learn's digits until it is overconfident. Then the demo runs
the steps of a user: model, validation logits, fit, promotion, calibrated probabilities. With
`--examples` it also calibrates networks whose logits are in a folder.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from recalib.client import Client
from recalib.core.packages import check_installed
from recalib.errors import InputError, RecalibError
from recalib.files import LabelledData, read
from recalib.metrics import Estimate, Predictions
from recalib.metrics.evaluate import evaluate
from recalib.reporting.terminal import metrics_table, print_json, progress, say

_TRAINING_ROWS, _VALIDATION_ROWS = 80, 700
_PATIENCE_SECONDS = 120
_METRICS = ("accuracy", "nll", "ece")
_PACKAGES = ("altair", "fastapi", "httpx2", "pyarrow", "sklearn", "torch", "vl_convert")


#: Metrics by name, ``before`` and ``after``.
_Comparison: TypeAlias = dict[str, dict[str, Estimate]]


def run(*, keep: bool, json_output: bool, examples: Path | None = None) -> None:
    """Run the demo; see the module.

    Parameters
    ----------
    examples: a folder with pairs of files, ``NAME-validation.npz`` and ``NAME-test.npz``.
    """
    check_installed("demo", *_PACKAGES, requirement="recalib[demo,fit,serve]")
    example_sets = {} if examples is None else _examples(examples)
    folder = Path(tempfile.mkdtemp(prefix="recalib-demo-"))
    home = folder / "home"
    with progress("demo", quiet=json_output) as at:
        # The server starts while the network is trained.
        with _server(home, keep) as process:
            at(f"training a small network on {_TRAINING_ROWS} handwritten digits")
            validation, test = _digits()
            at("waiting for recalib serve")
            url = _address(process, home)
            answer, fit = _calibrate_through(url, "digits", validation, test, at)
            judged = {}
            for name, (held_out, test_split) in example_sets.items():
                calibrated, _ = _calibrate_through(url, name, held_out, test_split, at)
                judged[name] = _measure(test_split, calibrated, _METRICS)
            if keep:
                from recalib.cli.demo_month import load_month

                load_month(url, folder, at)
        at("drawing")
        picture = _draw(folder, test, answer)
    metrics = _measure(test, answer)
    if json_output:
        server = {"url": url} | ({"pid": process.pid} if keep else {})
        document = {"metrics": _plain(metrics), "diagram": str(picture), "fit": fit, **server}
        if examples is not None:
            document["examples"] = {name: _plain(example) for name, example in judged.items()}
        print_json(document)
        return
    say(f"fitted {fit['map']}, version {fit['version']}: {fit['reason']}")
    say(_table(metrics, f"{len(test.labels)} held-out digits, 95% intervals"))
    for name, example in judged.items():
        rows = len(example_sets[name][1].labels)
        say(_table(example, f"{name}: {rows} test images, 95% intervals"))
    say(f"reliability diagram: {picture}")
    if keep:
        _print_next_steps(url, process.pid, test)


def _measure(
    test: LabelledData, answer: NDArray[np.float32], metrics: Sequence[str] | None = None
) -> _Comparison:
    """Return metrics before and after calibration; all metrics by default."""
    return {
        "before": evaluate(test.labels, logits=test.logits, metrics=metrics, level=0.95),
        "after": evaluate(test.labels, probabilities=answer, metrics=metrics, level=0.95),
    }


def _plain(judged: _Comparison) -> dict[str, Any]:
    return {stage: {k: asdict(v) for k, v in metrics.items()} for stage, metrics in judged.items()}


def _table(judged: _Comparison, title: str) -> Table:
    columns = {
        stage: {name: metrics[name] for name in _METRICS} for stage, metrics in judged.items()
    }
    return metrics_table(columns, title)


def _examples(folder: Path) -> dict[str, tuple[LabelledData, LabelledData]]:
    """Return validation and test logits of each network in the folder, by name."""
    examples = {}
    for path in sorted(folder.glob("*-validation.npz")):
        name = path.name.removesuffix("-validation.npz")
        examples[name] = read(path), read(folder / f"{name}-test.npz")
    if not examples:
        accepted = "a folder with NAME-validation.npz and NAME-test.npz"
        raise InputError("examples", found=f"none in {folder}", accepted=accepted)
    return examples


def _digits() -> tuple[LabelledData, LabelledData]:
    """Train an overconfident network on few rows; return its validation and test logits."""
    import torch
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.tensor(images[order] / 16, dtype=torch.float32)
    y = torch.tensor(labels[order])
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the network is too small for several threads
    network = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(300):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(x[:_TRAINING_ROWS]), y[:_TRAINING_ROWS])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        z = network(x).numpy()
    ends = [_TRAINING_ROWS, _TRAINING_ROWS + _VALIDATION_ROWS]
    _, validation, test = map(LabelledData, np.split(z, ends), np.split(y.numpy(), ends))
    return validation, test


@contextlib.contextmanager
def _server(home: Path, keep: bool) -> Iterator[subprocess.Popen[str]]:
    """Start `recalib serve` on a free port; stop it at the end unless `keep` is set."""
    home.mkdir(parents=True)
    ports = ["--port", "0", "--grpc-port", "-1"]
    command = [sys.executable, "-P", "-m", "recalib", "serve", *ports, "--json"]
    with _log(home).open("wb") as log:
        process = subprocess.Popen(
            [*command, "--home", str(home)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=keep,
        )
    try:
        yield process
    except BaseException:
        _stop(process)
        raise  # keep the home for its log
    if not keep:
        _stop(process)
        shutil.rmtree(home, ignore_errors=True)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=60)


def _log(home: Path) -> Path:
    return home / "server.log"


def _address(process: subprocess.Popen[str], home: Path) -> str:
    """Return the server's URL, on which requests wait until it has started."""
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise RecalibError(f"the server did not start; see {_log(home)}")
    return json.loads(line)["url"]


def _calibrate_through(
    url: str, name: str, validation: LabelledData, test: LabelledData, at: Callable[[str], None]
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Run the steps of a user; return calibrated test probabilities and the result of the fit."""
    with Client(url, timeout=_PATIENCE_SECONDS) as client:
        client.create_model(name, validation.logits.shape[1])
        at(f"{name}: uploading validation logits")
        client.upload_dataset(
            name, "validation", validation.logits, validation.labels, progress=False
        )
        at(f"{name}: fitting")
        submitted = client.fit(name, "validation", map="temperature", promote=False)
        job = client.wait(submitted, timeout=_PATIENCE_SECONDS, progress=False)
        version = (job.result or {})["version"]
        at(f"{name}: promoting, and calibrating held-out logits")
        client.promote(name, version)
        answer = client.calibrate(name, test.logits)
        card = client.get_calibrator(name, version).card
    fit = {"map": card["map"], "version": version, "reason": card["selection"]["reason"]}
    return answer, fit


def _draw(folder: Path, test: LabelledData, answer: NDArray[np.float32]) -> Path:
    from recalib.reporting.plots import reliability_diagram, save

    series = {
        "before": Predictions.from_logits(test.logits, test.labels),
        "after": Predictions.from_probabilities(answer, test.labels),
    }
    path = folder / "reliability.png"
    save(reliability_diagram(series), path)
    return path


def _print_next_steps(url: str, pid: int, test: LabelledData) -> None:
    row = json.dumps({"logits": [[round(float(value), 3) for value in test.logits[0]]]})
    say("\nThe server keeps running, with a simulated month of three more models. Open")
    say(f"  {url}/")
    say("in a browser, or try:")
    say(
        f"  curl -s {url}/v1/models/digits/calibrate -H 'Content-Type: application/json' -d '{row}'"
    )
    say(f"  curl -s {url}/v1/models/digits/calibrators/1")
    say(f"  curl -s {url}/metrics")
    say(f"Stop it with: kill {pid}")
