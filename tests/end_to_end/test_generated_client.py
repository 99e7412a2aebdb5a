"""A client generated from the live OpenAPI description works with the live service."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.programs import Programs, Server, until
from tests.fitting.conftest import draw
from tests.service.conftest import npz

pytestmark = pytest.mark.slow

#: The generator knows one content type for binary bodies.
_CONFIG = """
package_name_override: generated_recalib
post_hooks: []
content_type_overrides:
  application/x-npz: application/octet-stream
"""


class Generated:
    """The generated package and its modules by name."""

    def __init__(self, server: Server) -> None:
        self.client = self.module("client").Client(
            base_url=server.url, raise_on_unexpected_status=True
        )

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"generated_recalib.{name}")

    def ask(self, operation: str, *path: Any, **more: Any) -> Any:
        """Call the operation and return the response as its described type."""
        return self.module(f"api.{operation}").sync(*path, client=self.client, **more)

    def model(self, name: str) -> Any:
        """Return a class of the package."""
        return getattr(self.module("models"), name)


@pytest.fixture
def generated(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Generated]:
    """A server with a worker, and a client generated from its description."""
    with programs.serve() as server:
        (tmp_path / "openapi.json").write_text(server.client.get("/openapi.json").text)
        (tmp_path / "config.yaml").write_text(_CONFIG)
        generator = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
        files = {"--path": "openapi.json", "--config": "config.yaml"}
        named = [part for option in files.items() for part in option]
        place = tmp_path / "generated_recalib"
        process = subprocess.run(
            [*generator, *named, "--output-path", place],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        monkeypatch.syspath_prepend(tmp_path)
        client = Generated(server)
        with client.client:
            yield client
    for name in [name for name in sys.modules if name.startswith("generated_recalib")]:
        del sys.modules[name]


def test_generated_client_runs_the_whole_workflow(generated: Generated) -> None:
    """Create, upload, fit, promote, calibrate and read problems, all with types."""
    ask, model = generated.ask, generated.model
    logits, labels = draw(600, 4, 3.0)

    created = ask("models.create_model", body=model("ModelCreate")(name="digits", classes=4))
    assert (type(created).__name__, created.name, created.classes) == ("Model", "digits", 4)

    file = generated.module("types").File(payload=io.BytesIO(npz(logits, labels)))
    dataset = ask("datasets.upload_dataset", "digits", "validation", body=file)
    assert (dataset.rows, dataset.metrics["accuracy"].value) == (600, pytest.approx(0.7, abs=0.3))
    listed = ask("datasets.list_datasets", "digits", limit=1)
    assert [dataset.name for dataset in listed.items] == ["validation"]

    expected = model("CalibratorCreate")(dataset="validation", promote=False)
    job = ask("calibrators.create_calibrator", "digits", body=expected)
    until(lambda: ask("jobs.get_job", job.id).finished_at, "the fit's end")
    version = ask("jobs.get_job", job.id).result["version"]
    assert ask("calibrators.get_calibrator", "digits", version).card["map"] == "temperature"

    body = model("CalibrateRequest")(logits=[*logits[:2].tolist(), [0.0, None, 1.0, 2.0]])
    early = ask("calibrate.calibrate", "digits", body=body)
    assert (early.calibrator.uncalibrated, early.calibrator.version) == (True, None)
    alias = ask(
        "calibrators.set_alias", "digits", "champion", body=model("AliasSet")(version=version)
    )
    assert alias.version == version
    answer = ask("calibrate.calibrate", "digits", body=body)
    assert answer.calibrator.map_ == "temperature"
    np.testing.assert_allclose(np.sum(answer.probabilities, axis=1), 1, atol=1e-6)
    assert answer.probabilities[2][1] == 0
    _see_problems(generated)


def _see_problems(generated: Generated) -> None:
    """A `Problem` has the status, the message and each violation."""
    missing = generated.ask("models.get_model", "nobody")
    assert isinstance(missing, generated.model("Problem"))
    assert (missing.status, missing.title) == (404, "Not found")
    assert missing.detail == "model 'nobody' does not exist"
    bad = generated.model("ModelCreate")(name="a b", classes=4)
    refused = generated.ask("models.create_model", body=bad)
    assert isinstance(refused, generated.model("Problem"))
    assert [(error.field, error.found) for error in refused.errors] == [("name", "'a b'")]
