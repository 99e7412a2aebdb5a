"""Every public function and class that a user calls has an example, and all examples run.

They run in one process. `names` has the variables that they know, and `prepare` the files.
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import recalib
from docs.conf import _MODULES
from recalib.errors import RecalibWarning
from tests.fitting.conftest import draw
from tests.onnx_fusion.models import save, typed

#: What functions return, or the server answers: not created by users. `ModelLog` is the server's.
_RESULTS = {
    "recalib.client": "Aggregated Labelled Likeliest Predictions Violation",
    "recalib.drift": "ClassEvidence ClassGap ClassWindow ConfidenceShift Coverage Evidence "
    "ExpectedPerformance ExpectedValue SegmentStatus SilentClasses Status Window",
    "recalib.replay": "ClassShares LogCohort LogSummary ModelLog ModelLogOptions Replay SegmentGap "
    "SegmentSearch Survey",
    "recalib.scale": "Applied",
}


def names() -> dict[str, Any]:
    """Return the variables of an example: 400 rows of three classes, and 400 new ones."""
    importlib.import_module("recalib.scale")
    logits, labels = draw(400, 3, 2.0)
    new_logits, new_labels = draw(400, 3, 2.0, seed=1)
    return {
        "calibrator": recalib.fit(logits, labels),
        "labels": labels,
        "logits": logits,
        "new_labels": new_labels,
        "new_logits": new_logits,
        "np": np,
        "recalib": recalib,
    }


def prepare(folder: Path) -> None:
    """Write `val.npz`, `test.npz`, and a classifier of three classes."""
    for seed, name in enumerate(("val.npz", "test.npz")):
        logits, labels = draw(400, 3, 2.0, seed=seed)
        np.savez(folder / name, logits=logits, labels=labels)
    shape, node = ["N", 3], helper.make_node("Identity", ["x"], ["scores"])
    x, scores = (typed(name, TensorProto.FLOAT, shape) for name in ("x", "scores"))
    graph = helper.make_graph([node], "classifier", [x], [scores])
    imports = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=imports, ir_version=8), folder, "classifier.onnx")


def public() -> list[Any]:
    """Return what a user calls or makes: no errors, and no results."""
    members = {}
    for name in _MODULES:
        module, results = importlib.import_module(name), _RESULTS.get(name, "").split()
        for member in sorted(set(getattr(module, "__all__", ())) - set(results)):
            value = getattr(module, member)
            is_made = inspect.isclass(value) and not issubclass(value, (Exception, Warning))
            if (is_made or inspect.isfunction(value)) and "contract" not in value.__module__:
                members[f"{value.__module__}.{value.__qualname__}"] = value
    return list(members.values())


@pytest.mark.parametrize("value", public(), ids=lambda value: value.__qualname__)
def test_public_name_has_an_example(value: Any) -> None:
    assert ">>> " in (inspect.getdoc(value) or "")


@pytest.mark.slow  # nine seconds of processor time
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    variables, finder = names(), doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    outputs: list[str] = []
    for name in sorted({value.__module__ for value in public()}):
        module = importlib.import_module(name)
        for test in finder.find(module, name, globs={**vars(module), **variables}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RecalibWarning)
                runner.run(test, out=outputs.append)
    assert runner.failures == 0, "".join(outputs)
    assert runner.tries > 150
