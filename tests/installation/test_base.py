"""What the installation without extras does: it works, or names the extra that is missing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recalib
from recalib.cli import root_command
from recalib.core.packages import REQUIREMENTS
from tests.fitting.conftest import draw
from tests.supply.requirements import ROOT

_URL = "--server http://127.0.0.1:9"
_MODEL = f"--model m {_URL}"
#: Each command, and the extra that it needs; none if it needs none.
_COMMANDS = {
    "fit val.npz --map auto -o t.calib": None,
    "fit val.npz --map parameterized_temperature -o p.calib": "fit",
    "fit val.npz --device cpu --map vector -o p.calib": "fit",
    "fit val.csv -o c.calib": "tables",
    "fit val.npz -o t.onnx": "onnx",
    "apply t.calib val.npz -o out.npz": None,
    "apply t.calib val.csv -o out.npz": "tables",
    "predict t.calib val.npz -o out.npz": None,
    "evaluate val.npz --calibrator t.calib": None,
    "evaluate val.npz --diagram d.svg": "pictures",
    "compare val.npz val.npz": None,
    "compare val.npz val.npz --cluster local:1": "cluster",
    "report val.npz val.npz -o r.html": "pictures",
    "replay log.parquet": "tables",
    "export t.calib -o t.onnx": "onnx",
    "fuse net.onnx t.calib -o fused.onnx": "onnx",
    "train recipe.json": "train",
    f"train recipe.json {_URL}": "client",
    f"publish t.calib {_MODEL}": "client",
    f"pull {_MODEL} -o pulled.calib": "client",
    f"calibrate val.npz {_MODEL} -o out.npz": "client",
    f"monitoring m {_URL}": "client",
    f"promote m 1 {_URL}": "client",
    f"rollback m {_URL}": "client",
    f"ingest labels.jsonl {_MODEL} --manifest done": "client",
    f"api list_models {_URL}": "client",
    "demo": "demo,fit,serve",
    "serve --home home": "serve",
    "worker --home home": "serve",
    "prepare --home home": "serve",
    "doctor --home home": "serve",
    "keys list --home home": "serve",
    "audit --home home": "serve",
    "backup saved --home home": "serve",
    "record-backup saved --home home": "serve",
    "restore saved --home home": "serve",
    "rotate-key --home home": "serve",
}
_FIT = "recalib.fit(logits, labels, 'vector')"
#: Python, and the extra that it needs.
_CALLS: dict[str, str | None] = {
    **{f"importlib.import_module('recalib.{name}')": None for name in sorted(recalib._SUBMODULES)},
    "importlib.import_module('recalib.lightning')": "lightning",
    "importlib.import_module('recalib.mlflow')": "mlflow",
    "importlib.import_module('recalib.recorder')": "fit",
    "importlib.import_module('recalib.sklearn')": "sklearn",
    "importlib.import_module('recalib.torch')": "fit",
    "importlib.import_module('recalib.torchmetrics')": "torchmetrics",
    "importlib.import_module('recalib.transformers')": "fit",
    "recalib.fit(logits, labels, 'auto')": None,
    f"recalib.evaluate(labels, {_FIT}.predict(logits))": None,
    f"{_FIT}.to_torch()": "fit",
    f"{_FIT}.to_onnx()": "onnx",
    f"{_FIT}.save('t.onnx')": "onnx",
    "recalib.fuse('net.onnx', 't.calib', 'fused.onnx')": "onnx",
    "recalib.losses.LOSSES['focal']": "fit",
    "recalib.losses.Loss": "fit",
    "recalib.monitor([0.5], [True], [0.0])": "tables",
    "recalib.reliability_diagram(labels, logits=logits)": "pictures",
    "recalib.report(logits, labels, logits, labels)": "pictures",
    "recalib.client.Client('http://127.0.0.1:9')": "client",
}


def _run(statements: str, folder: Path) -> dict[str, tuple[str, str, Any]]:
    """Run statements where packages of extras are hidden; return the result of each call."""
    process = subprocess.run(
        [sys.executable, "-m", "tests.installation.hidden_packages", statements],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RECALIB_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    lines = [json.loads(line) for line in process.stdout.splitlines()]
    return {name: (failure, text, status) for name, failure, text, status in lines}


def _is_expected(text: str, status: int, extra: str | None) -> bool:
    """Return whether a command has succeeded, or has named the extra."""
    if extra is None:
        return status == 0 and "error" not in text
    named = re.search(rf"no (package )?\w+.*pip install 'recalib\[{extra}\]'", text)
    return status == 2 and named is not None


def test_every_command_runs_or_names_its_extra(tmp_path: Path) -> None:
    assert {command.split()[0] for command in _COMMANDS} == set(root_command().commands)
    logits, labels = draw(80, 3, 2.0)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    (tmp_path / "val.csv").write_text("logit_0,logit_1,labels\n1,0,0\n")
    for name in ("log.parquet", "net.onnx", "saved"):
        (tmp_path / name).write_bytes(b"PAR1")
    (tmp_path / "labels.jsonl").write_text('{"prediction_id": "a", "label": 0}\n')
    data = {"source": "digits"}
    (tmp_path / "recipe.json").write_text(json.dumps({"data": data, "model": {"name": "linear"}}))
    results = _run(
        "from recalib.cli import main\n"
        f"for command in {list(_COMMANDS)}: run(command, lambda: main(command.split()))",
        tmp_path,
    )
    wrong = {
        command: results[command]
        for command, extra in _COMMANDS.items()
        if not _is_expected(*results[command][1:], extra)
    }
    assert wrong == {}
    assert "left out: map: found no torch" in results["compare val.npz val.npz"][1]


def test_python_works_or_names_its_extra(tmp_path: Path) -> None:
    """As `InputError` and as `ImportError`."""
    logits, labels = draw(80, 3, 2.0)
    np.savez(tmp_path / "val.npz", logits=logits, labels=labels)
    results = _run(
        "import importlib, recalib, numpy as np\n"
        "with np.load('val.npz') as data: logits, labels = data['logits'], data['labels']\n"
        f"for call in {list(_CALLS)}: run(call, lambda: eval(call))\n",
        tmp_path,
    )
    wrong = {}
    for call, extra in _CALLS.items():
        failure, text, _ = results[call]
        requirement = extra if extra == "mlflow" else rf"recalib\[{extra}\]"
        sentence = rf"found no package \w+; .*pip install '{requirement}'"
        named = failure == "PackageError" and re.search(sentence, text)
        if not (failure == "" if extra is None else named):
            wrong[call] = failure, text
    assert wrong == {}


def test_float32_without_onnxruntime_is_that_of_onnxruntime(tmp_path: Path) -> None:
    logits, labels = draw(500, 6, 2.0)
    narrow = logits.astype(np.float32)
    np.save(tmp_path / "logits.npy", narrow)
    statements = "import recalib, numpy as np\nlogits = np.load('logits.npy')\n"
    for name in ("temperature", "structured_matrix", "quadratic"):
        calibrator = recalib.fit(logits, labels, name)
        calibrator.save(tmp_path / f"{name}.calib")
        np.save(tmp_path / f"{name}.npy", calibrator.predict(narrow))
        statements += (
            f"p, q = recalib.load('{name}.calib').predict(logits), np.load('{name}.npy')\n"
            "assert p.dtype == q.dtype == np.float32\n"
            f"run('{name}', lambda: np.testing.assert_allclose(p, q, rtol=0, atol=1e-6))\n"
        )
    results = _run(statements, tmp_path)
    assert len(results) == 3
    assert all(failure == "" for failure, *_ in results.values()), results


@pytest.mark.parametrize("package", REQUIREMENTS)
def test_requirement_is_an_extra_that_exists(package: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    if match := re.fullmatch(r"recalib\[(\w+)\]", REQUIREMENTS[package]):
        assert re.search(rf"^{match[1]} = \[", text, re.MULTILINE), match[1]


def test_page_lists_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "docs" / "install.md").read_text()
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    extras = set(project["optional-dependencies"]) - {"dev"}
    assert set(re.findall(r"`(\w+)`", " ".join(cells))) == extras
