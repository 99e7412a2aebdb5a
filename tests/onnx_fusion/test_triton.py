"""A model repository of Triton; `tests/clients` reads its configurations with Triton's client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession

import recalib
from recalib import Calibrator
from recalib.errors import InputError
from recalib.onnx_fusion.triton import write_repository
from tests.fitting.conftest import draw
from tests.onnx_fusion.models import FEATURES, classifier, save, typed

X = np.random.default_rng(0).normal(size=(6, FEATURES))


@pytest.fixture(scope="module")
def calibrator() -> Calibrator:
    return recalib.fit(*draw(300, 4, 3.0), "vector")


def run(repository: Path, model: str, feed: dict[str, Any]) -> Any:
    session = InferenceSession(repository / model / "1" / "model.onnx")
    (result,) = session.run(None, feed)
    return result


def test_calibrator_alone_maps_logits_to_probabilities(
    calibrator: Calibrator, tmp_path: Path
) -> None:
    logits = draw(9, 4, 3.0, seed=1)[0].astype(np.float32)
    assert write_repository(calibrator, tmp_path, "m") == ["m"]
    probabilities = run(tmp_path, "m", {"logits": logits})
    np.testing.assert_allclose(probabilities, calibrator.predict(logits), atol=1e-6)
    assert (tmp_path / "m" / "config.pbtxt").read_text() == (
        'name: "m"\n'
        'platform: "onnxruntime_onnx"\n'
        "max_batch_size: 0\n"
        'input { name: "logits" data_type: TYPE_FP32 dims: [ -1, 4 ] }\n'
        'output { name: "probabilities" data_type: TYPE_FP32 dims: [ -1, 4 ] }\n'
    )


def test_calibrator_with_thresholds_has_outputs_of_sets_and_accepted_rows(tmp_path: Path) -> None:
    calibrator = recalib.fit(*draw(300, 4, 3.0), sets="aps", max_risk=0.7)
    model = save(classifier(), tmp_path)
    write_repository(calibrator, tmp_path / "r", "m", model=model)
    for name in ("m", "m_calibrator"):
        config = (tmp_path / "r" / name / "config.pbtxt").read_text()
        assert 'output { name: "sets" data_type: TYPE_BOOL dims: [ -1, 4 ] }\n' in config
        assert 'output { name: "accepted" data_type: TYPE_BOOL dims: [ -1, 1 ] }\n' in config


def test_venn_abers_has_an_output_of_intervals(tmp_path: Path) -> None:
    calibrator = recalib.fit(*draw(300, 4, 3.0), "venn_abers")
    write_repository(calibrator, tmp_path, "m")
    assert (
        'output { name: "intervals" data_type: TYPE_FP32 dims: [ -1, 4, 2 ] }\n'
        in (tmp_path / "m" / "config.pbtxt").read_text()
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("input", ["logits", "probabilities"])
def test_calibrator_takes_the_type_of_the_classifier(
    tmp_path: Path, dtype: str, input: Any
) -> None:
    """Triton connects two models of an ensemble only if the types of their tensors are equal."""
    calibrator = recalib.fit(*draw(300, 4, 3.0))
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    more = [helper.make_node("Softmax", ["scores"], ["p"])] if input == "probabilities" else []
    output = "p" if more else "scores"
    outputs = [typed(output, number, ["N", 4])]
    model = save(classifier(dtype=number, more=more, outputs=outputs), tmp_path)
    write_repository(calibrator, tmp_path / "r", "m", model=model, input=input, max_batch_size=8)
    scores = run(tmp_path / "r", "m_classifier", {"x": X.astype(dtype)})
    assert scores.dtype == dtype
    probabilities = run(tmp_path / "r", "m_calibrator", {"scores": scores})
    expected = calibrator.predict(scores.astype(np.float64), input=input)
    np.testing.assert_allclose(probabilities, expected, atol=2e-6)
    config = (tmp_path / "r" / "m_calibrator" / "config.pbtxt").read_text()
    assert f"data_type: TYPE_FP{dtype[5:]} dims: [ 4 ]" in config


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"name": "a/b"}, "name: found 'a/b'"),
        ({}, {"source": "y"}, "from: found 'y'"),
        ({}, {"input": "probabilities"}, "while this vector was fitted on logits"),
        ({"rows": 5}, {"max_batch_size": 8}, "max_batch_size: found x with a first axis of 5"),
        (
            {"outputs": [typed("scores", TensorProto.FLOAT, ["N", 3])]},
            {},
            "model output passed: found 3 classes",
        ),
        ({"outputs": [typed("scores", TensorProto.FLOAT, [])]}, {}, "model tensor scores: found"),
    ],
)
def test_impossible_exports_write_nothing(
    calibrator: Calibrator,
    tmp_path: Path,
    changes: dict[str, Any],
    options: dict[str, Any],
    message: str,
) -> None:
    model = save(classifier(**changes), tmp_path)
    with pytest.raises(InputError) as raised:
        write_repository(calibrator, tmp_path / "r", **{"name": "m", "model": model, **options})
    assert message in str(raised.value)
    assert not (tmp_path / "r").exists()


def test_existing_model_is_not_overwritten(calibrator: Calibrator, tmp_path: Path) -> None:
    write_repository(calibrator, tmp_path, "m")
    with pytest.raises(InputError, match="which exists"):
        write_repository(calibrator, tmp_path, "m")
