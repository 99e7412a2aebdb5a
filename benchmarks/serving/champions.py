"""A Recalib home with a champion for each number of classes, fitted by jobs."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import httpx2
import numpy as np

from benchmarks.serving.processes import free_port, running, until
from recalib.calibrator import Calibrator

_CLASSES = (10, 1000)
_ROWS = 500


def prepare(folder: Path) -> tuple[Path, dict[int, float]]:
    """Fit a temperature for 10 and for 1,000 classes, as the models `of10` and `of1000`.

    Returns the home, and the temperatures by number of classes.
    """
    port = free_port()
    options = ["--port", str(port), "--home", str(folder / "home")]
    command = [sys.executable, "-m", "recalib", "serve", *options]
    (folder / "fits").mkdir()
    with (
        running(command, folder / "fits", {"RECALIB_GRPC_PORT": "0"}) as tree,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):

        def ready() -> bool:
            try:
                return client.get("/readyz").status_code == 200
            except httpx2.TransportError:
                return False

        until(ready, tree, "recalib serve")
        versions = {classes: _fitted(client, classes) for classes in _CLASSES}
    return folder / "home", versions


def npz_of(classes: int, rows: int, seed: int) -> bytes:
    """Return a .npz of logits, with labels drawn at temperature 2."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    file = io.BytesIO()
    np.savez(file, logits=logits, labels=labels)
    return file.getvalue()


def _fitted(client: httpx2.Client, classes: int) -> float:
    """Fit and promote; return the temperature."""
    model = f"/v1/models/of{classes}"
    client.post("/v1/models", json={"name": f"of{classes}", "classes": classes}).raise_for_status()
    body, headers = npz_of(classes, _ROWS, seed=classes), {"Content-Type": "application/x-npz"}
    client.put(f"{model}/datasets/d", content=body, headers=headers).raise_for_status()
    options = {"dataset": "d", "map": "temperature", "promote": True}
    job = client.post(f"{model}/calibrators", json=options).raise_for_status().json()
    while job["state"] in ("queued", "running"):
        time.sleep(0.1)
        job = client.get(f"/v1/jobs/{job['id']}").raise_for_status().json()
    if job["state"] != "succeeded":
        raise RuntimeError(f"the fit {job['state']}: {job['error']}")
    content = client.get(f"{model}/calibrators/1/parameters").raise_for_status().content
    return float(Calibrator.from_bytes(content).parameters["temperature"])
