"""Classifiers that torch and scikit-learn train on real digits and export by themselves."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import recalib
from recalib.errors import InputError

TRAINED, FITTED = slice(0, 600), slice(600, 1200)
ROWS = slice(1200, 1233)  # unseen, and as many as nothing else was run on


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 64), from 0 to 1, and what they show."""
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels


@pytest.fixture(scope="module")
def network() -> Any:
    """A small CNN with batch normalisation, trained until it is sure of itself."""
    torch = pytest.importorskip("torch")
    images, labels = digits()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(3),
            torch.nn.Flatten(),
            torch.nn.Linear(72, 10),
        )
        x, y = torch.tensor(images[TRAINED]).reshape(-1, 1, 8, 8), torch.tensor(labels[TRAINED])
        optimiser = torch.optim.Adam(net.parameters(), lr=0.03)
        for _ in range(150):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
    return net.eval()


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    images, labels = digits()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=100.0, max_iter=2000))
    return model.fit(images[TRAINED], labels[TRAINED])


def answers(path: Path, **feed: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feed), strict=True))


def export(network: Any, path: Path, by: str) -> None:
    """Write the network with a free number of rows, by either of torch's exporters."""
    torch = pytest.importorskip("torch")
    new = by == "dynamo"
    if new:
        pytest.importorskip("onnxscript")
    axes: dict[str, Any] = (
        {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "external_data": False}
        if new
        else {"dynamic_axes": {"image": {0: "batch"}, "logits": {0: "batch"}}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters deprecate each other, and their own parts
        torch.onnx.export(
            network,
            (torch.zeros(2, 1, 8, 8),),
            path,
            input_names=["image"],
            output_names=["logits"],
            dynamo=new,
            verbose=False,
            **axes,
        )


@pytest.mark.slow
@pytest.mark.parametrize("by", [pytest.param("dynamo", marks=pytest.mark.slow), "torchscript"])
@pytest.mark.parametrize("map", ["temperature", "structured_matrix", "isotonic"])
def test_torch_network_can_be_fused(map: str, by: str, network: Any, tmp_path: Path) -> None:
    """One file answers what torch's network and then the fitted calibrator answer."""
    torch = pytest.importorskip("torch")
    images, labels = digits()
    with torch.no_grad():
        logits = network(torch.tensor(images).reshape(-1, 1, 8, 8)).numpy()
    calibrator = recalib.fit(logits[FITTED], labels[FITTED], map=map)
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    export(network, model, by)
    proof = recalib.fuse(model, calibrator, out).proof
    assert proof.rows == 80  # all batches: 1, 7 and 32 rows
    assert proof.warnings == ()
    outputs = answers(out, image=images[ROWS].reshape(-1, 1, 8, 8))
    np.testing.assert_allclose(outputs["logits"], logits[ROWS], rtol=1e-4, atol=1e-4)
    expected = calibrator.predict_float64(outputs["logits"])
    np.testing.assert_allclose(outputs["probabilities"], expected, rtol=1e-4, atol=1e-6)
    raw = np.exp(logits[ROWS]) / np.exp(logits[ROWS]).sum(axis=1, keepdims=True)
    assert np.abs(outputs["probabilities"] - raw).max() > 0.01  # it does calibrate


def convert(pipeline: Pipeline, path: Path, zipmap: bool) -> None:
    convert = pytest.importorskip("skl2onnx")
    types = pytest.importorskip("skl2onnx.common.data_types")
    initial = [("x", types.FloatTensorType([None, 64]))]
    model = convert.to_onnx(pipeline, initial_types=initial, options={"zipmap": zipmap})
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("map", ["temperature", "dirichlet", "beta"])
def test_scikit_learn_pipeline_can_be_fused(map: str, pipeline: Pipeline, tmp_path: Path) -> None:
    """Its labels stay, its operators are of another domain, and it answers probabilities."""
    images, labels = digits()
    before = pipeline.predict_proba(images)
    calibrator = recalib.fit(before[FITTED], labels[FITTED], map=map, input="probabilities")
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    convert(pipeline, model, zipmap=False)
    fused = recalib.fuse(model, calibrator, out, source="probabilities", input="probabilities")
    assert fused.probabilities == "calibrated_probabilities"
    outputs = answers(out, x=images[ROWS])
    np.testing.assert_array_equal(outputs["label"], pipeline.predict(images[ROWS]))
    # float32 has the smaller ones of scikit-learn's probabilities to a few digits only.
    np.testing.assert_allclose(outputs["probabilities"], before[ROWS], rtol=1e-3, atol=1e-6)
    expected = calibrator.predict(outputs["probabilities"], input="probabilities")
    np.testing.assert_allclose(outputs["calibrated_probabilities"], expected, rtol=1e-4, atol=1e-6)
    assert np.abs(expected - before[ROWS]).max() > 0.01


def test_dictionary_output_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    """The default output of skl2onnx; nothing is written."""
    images, labels = digits()
    calibrator = recalib.fit(
        pipeline.predict_proba(images[FITTED]), labels[FITTED], input="probabilities"
    )
    convert(pipeline, tmp_path / "model.onnx", zipmap=True)
    with pytest.raises(InputError, match="found sequence; accepted: a tensor"):
        recalib.fuse(
            tmp_path / "model.onnx",
            calibrator,
            tmp_path / "out.onnx",
            source="output_probability",
            input="probabilities",
        )
    assert not (tmp_path / "out.onnx").exists()
