"""The main workflow with real processes: `recalib serve`, its worker and the command line."""

from __future__ import annotations

import io
import json
import subprocess

import numpy as np
import pytest

from tests.end_to_end.programs import Programs, probabilities_of, recalib_command
from tests.fitting.conftest import draw
from tests.service.conftest import NPY, npy


@pytest.mark.slow
def test_upload_fit_promote_calibrate_and_export(programs: Programs) -> None:
    """The served probabilities equal those of the downloaded parameter file.

    On PostgreSQL: `tests/deploy/test_system.py`.
    """
    logits, labels = draw(2000, 5, 3.0)
    with programs.serve() as server:
        server.model(classes=5)
        assert server.upload(logits, labels)["rows"] == 2000
        job = server.finished(server.ask_fit(map="temperature", promote=False))
        assert job["result"]["version"] == 1
        assert server.calibrate(logits[:1])["calibrator"]["uncalibrated"]
        server.promote(1)

        rows = logits[:50].astype(np.float32)
        answer = server.calibrate(rows)
        assert answer["calibrator"] == {"version": 1, "map": "temperature"}
        accept = {**NPY, "Accept": "application/x-npy"}
        binary = server.client.post(
            "/v1/models/digits/calibrate", content=npy(rows), headers=accept
        )
        np.testing.assert_array_equal(np.load(io.BytesIO(binary.content)), probabilities_of(answer))
        parameters = server.client.get("/v1/models/digits/calibrators/1/parameters").content

    calib, data, out = (programs.folder / name for name in ("one.calib", "rows.npz", "out.npz"))
    calib.write_bytes(parameters)
    np.savez(data, logits=rows)
    command = recalib_command("apply", calib, data, "-o", out, "--json")
    process = subprocess.run(command, check=True, capture_output=True)
    assert json.loads(process.stdout)["rows"] == 50
    with np.load(out) as archive:
        np.testing.assert_array_equal(archive["probabilities"], probabilities_of(answer))
