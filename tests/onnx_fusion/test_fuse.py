"""A fused file answers what the model answers, and what the calibrator makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.numpy_helper import from_array

import recalib
from recalib.calibrator import Calibrator
from recalib.errors import InputError, UnsupportedError
from recalib.maps import MAPS
from recalib.onnx_fusion.fuse import fuse
from recalib.sets.rejection import accepts
from tests.fitting.conftest import draw
from tests.maps.test_contract import calibrator_of
from tests.onnx_fusion.models import CLASSES, FEATURES, classifier, save, typed

FLOATS = {
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}


def calibrator(name: str = "temperature", classes: int = CLASSES) -> Calibrator:
    return calibrator_of(MAPS[name](), classes)


def answers(path: Path, **feed: np.ndarray) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def some_x(rows: int = 9, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(rows, FEATURES)).astype(dtype)


@pytest.mark.parametrize("name", MAPS)
def test_every_map_can_be_fused(name: str, tmp_path: Path) -> None:
    model, out = save(classifier(), tmp_path), tmp_path / "out.onnx"
    fused = fuse(model, calibrator(name), out)
    assert fused.proof.share <= 1
    assert fused.proof.rows == 80
    answer = answers(out, x=some_x())
    assert list(answer)[:2] == ["scores", "probabilities"]
    np.testing.assert_array_equal(answer["scores"], answers(model, x=some_x())["scores"])
    expected = calibrator(name).predict_float64(answer["scores"].astype(np.float64))
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=2e-5, atol=1e-6)
    onnx.checker.check_model(out, full_check=True)


def test_calibrator_may_be_a_path_and_saves_itself_as_a_graph(tmp_path: Path) -> None:
    model, fitted = save(classifier(), tmp_path), calibrator()
    fitted.save(tmp_path / "t.calib")
    fitted = recalib.load(tmp_path / "t.calib")
    recalib.fuse(str(model), str(tmp_path / "t.calib"), str(tmp_path / "path.onnx"))
    fuse(model, fitted, tmp_path / "object.onnx")
    assert (tmp_path / "path.onnx").read_bytes() == (tmp_path / "object.onnx").read_bytes()
    fitted.save(tmp_path / "t.ONNX")
    assert (tmp_path / "t.ONNX").read_bytes() == fitted.to_onnx()


#: Each map with two versions, so that each version is covered; the other pairs are slow.
_OPSETS = (13, 15, 17, 18, 20, 21, 22)


@pytest.mark.parametrize(
    ("name", "opset"),
    [
        pytest.param(name, opset, marks=[] if (j - 2 * i) % 7 < 2 else pytest.mark.slow)
        for i, name in enumerate(MAPS)
        for j, opset in enumerate(_OPSETS)
    ],
)
def test_opset_of_the_model_is_preserved(name: str, opset: int, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    fuse(save(classifier(opset=opset), tmp_path), calibrator(name), out)
    assert [(entry.domain, entry.version) for entry in onnx.load(out).opset_import] == [("", opset)]
    onnx.checker.check_model(out, full_check=True)


@pytest.mark.parametrize("opset", [7, 9, 11, 12])
def test_older_opset_is_converted(opset: int, tmp_path: Path) -> None:
    softmax = helper.make_node("Softmax", ["scores"], ["p"], axis=1)
    outputs = [typed(name, TensorProto.FLOAT, ["N", CLASSES]) for name in ("scores", "p")]
    model = save(classifier(opset=opset, more=[softmax], outputs=outputs), tmp_path)
    fuse(model, calibrator(), tmp_path / "out.onnx", source="scores")
    answer = answers(tmp_path / "out.onnx", x=some_x())
    np.testing.assert_allclose(answer["p"], answers(model, x=some_x())["p"], rtol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_type_is_accepted(dtype: str, tmp_path: Path) -> None:
    """The new output is float32 for every precision of the model."""
    model = save(classifier(dtype=FLOATS[dtype]), tmp_path)
    fuse(model, calibrator(), tmp_path / "out.onnx")
    answer = answers(tmp_path / "out.onnx", x=some_x(dtype=np.dtype(dtype).type))
    assert answer["scores"].dtype == dtype
    assert answer["probabilities"].dtype == np.float32


@pytest.mark.parametrize("rows", [1, 3])
def test_fixed_batch_size_is_preserved(rows: int, tmp_path: Path) -> None:
    fuse(save(classifier(rows=rows), tmp_path), calibrator(), tmp_path / "out.onnx")
    output = onnx.load(tmp_path / "out.onnx").graph.output[1]
    assert [d.dim_value for d in output.type.tensor_type.shape.dim] == [rows, CLASSES]


def test_symbolic_batch_size_is_preserved(tmp_path: Path) -> None:
    fuse(save(classifier(rows="batch"), tmp_path), calibrator(), tmp_path / "out.onnx")
    output = onnx.load(tmp_path / "out.onnx").graph.output[1]
    assert output.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_existing_names_are_not_reused(tmp_path: Path) -> None:
    """Also those of a subgraph, which sees the names around it."""
    model = classifier(output="probabilities")
    inner = helper.make_graph(
        [helper.make_node("Identity", ["probabilities"], ["recalib/value_0"])],
        "inner",
        [],
        [typed("recalib/value_0", TensorProto.FLOAT, None)],
    )
    true = from_array(np.array(True), "true")
    model.graph.initializer.append(true)
    model.graph.node.append(
        helper.make_node("If", ["true"], ["y"], then_branch=inner, else_branch=inner)
    )
    model.graph.output.append(typed("y", TensorProto.FLOAT, ["N", CLASSES]))
    fused = fuse(save(model, tmp_path), calibrator(), tmp_path / "out.onnx", source="y")
    assert fused.probabilities == "calibrated_probabilities"
    assert list(answers(tmp_path / "out.onnx", x=some_x())) == [
        "probabilities",
        "y",
        "calibrated_probabilities",
    ]


def test_thresholds_give_an_output_of_sets(tmp_path: Path) -> None:
    """They equal those of the calibrator on the probabilities of the graph."""
    fitted = recalib.fit(*draw(300, CLASSES, 3.0), "vector").fit_sets(*draw(300, CLASSES, 1.0))
    fuse(save(classifier(opset=13), tmp_path), fitted, tmp_path / "out.onnx")
    scores, probabilities, sets = answers(tmp_path / "out.onnx", x=some_x(50)).values()
    np.testing.assert_array_equal(sets, fitted.sets_of(probabilities, scores))


def test_rejection_gives_an_output_of_accepted_rows(tmp_path: Path) -> None:
    """They equal those of the calibrator on the probabilities of the graph."""
    fitted = recalib.fit(*draw(300, CLASSES, 3.0), "vector", max_risk=0.7)
    fuse(save(classifier(opset=13), tmp_path), fitted, tmp_path / "out.onnx")
    _, probabilities, accepted = answers(tmp_path / "out.onnx", x=some_x(50)).values()
    assert fitted.card.rejection is not None
    np.testing.assert_array_equal(accepted[:, 0], accepts(probabilities, fitted.card.rejection))


def test_venn_abers_gives_an_output_of_intervals(tmp_path: Path) -> None:
    """They equal those of the calibrator on the scores of the graph, as the proof says too."""
    fitted = recalib.fit(*draw(300, CLASSES, 3.0), "venn_abers")
    fuse(save(classifier(opset=13), tmp_path), fitted, tmp_path / "out.onnx")
    scores, _, intervals = answers(tmp_path / "out.onnx", x=some_x(50)).values()
    np.testing.assert_allclose(intervals, fitted.predict_interval(scores), rtol=0, atol=2e-7)


def test_output_can_be_replaced(tmp_path: Path) -> None:
    fuse(save(classifier(), tmp_path), calibrator(), tmp_path / "out.onnx", keep=False)
    assert list(answers(tmp_path / "out.onnx", x=some_x())) == ["probabilities"]


def test_declared_softmax_is_used(tmp_path: Path) -> None:
    """A declared softmax is undone; otherwise there is a warning, and no guess."""
    softmax = helper.make_node("Softmax", ["scores"], ["p"], axis=1)
    output = [typed("p", TensorProto.FLOAT, ["N", CLASSES])]
    # So steep that some probabilities underflow to 0, whose logarithm is clipped.
    model = save(classifier(more=[softmax], outputs=output, scale=60.0), tmp_path)
    assert (answers(model, x=some_x())["p"] == 0).any()
    fusion = fuse(model, calibrator(), tmp_path / "said.onnx", input="probabilities")
    assert fusion.proof.warnings == ()
    answer = answers(tmp_path / "said.onnx", x=some_x())
    expected = calibrator().predict(answer["p"], input="probabilities")
    np.testing.assert_allclose(answer["probabilities"], expected, rtol=1e-4, atol=1e-6)
    guessed = fuse(model, calibrator(), tmp_path / "guessed.onnx")
    assert "probabilities" in guessed.proof.warnings[0]


def test_masks_of_the_model_are_preserved(tmp_path: Path) -> None:
    """A model may add −inf for classes that a row cannot have."""
    model = classifier(output="all")
    mask = np.array([0, -np.inf, 0, 0], np.float32)
    model.graph.initializer.append(from_array(mask, "mask"))
    model.graph.node.append(helper.make_node("Add", ["all", "mask"], ["scores"]))
    model.graph.output[0].name = "scores"
    fuse(save(model, tmp_path), calibrator("matrix"), tmp_path / "out.onnx")
    answer = answers(tmp_path / "out.onnx", x=some_x())["probabilities"]
    assert (answer[:, 1] == 0).all()
    np.testing.assert_allclose(answer.sum(axis=1), 1, rtol=1e-6)


def test_external_weights_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = classifier()
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    out = tmp_path / "out.onnx"
    fuse(path, calibrator(), out)
    assert "probabilities" in answers(out, x=some_x())
    (tmp_path / "other").mkdir()
    with pytest.raises(InputError, match="weights are in files beside"):
        fuse(path, calibrator(), tmp_path / "other" / "out.onnx")
    assert list((tmp_path / "other").iterdir()) == []


def test_free_axes_need_a_shape(tmp_path: Path) -> None:
    """Images of any size: nothing says which sizes the network takes."""
    mean = helper.make_node("GlobalAveragePool", ["image"], ["pooled"])
    flat = helper.make_node("Flatten", ["pooled"], ["x"])
    model = classifier()
    model.graph.input[0].CopyFrom(typed("image", TensorProto.FLOAT, ["N", FEATURES, "H", "W"]))
    nodes = [mean, flat, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path = save(model, tmp_path)
    with pytest.raises(InputError, match=r"axis 2, 3 free.*--shape image=\?x5x\?x\?"):
        fuse(path, calibrator(), tmp_path / "out.onnx")
    proof = fuse(
        path, calibrator(), tmp_path / "out.onnx", shapes={"image": (2, FEATURES, 8, 8)}
    ).proof
    assert proof.rows == 12
    with pytest.raises(InputError, match="shape: found 'imge'"):
        fuse(path, calibrator(), tmp_path / "out.onnx", shapes={"imge": (1,)})


def test_token_ids_and_masks_are_generated(tmp_path: Path) -> None:
    ids, mask = (typed(name, TensorProto.INT64, ["N", 6]) for name in ("ids", "mask"))
    table = np.random.default_rng(0).normal(size=(2, CLASSES)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["embedded"]),
            helper.make_node("Cast", ["mask"], ["weight"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["weight", "last"], ["wide"]),
            helper.make_node("Mul", ["embedded", "wide"], ["kept"]),
            helper.make_node("ReduceSum", ["kept", "axis"], ["scores"], keepdims=0),
        ],
        "bag",
        [ids, mask],
        [typed("scores", TensorProto.FLOAT, ["N", CLASSES])],
        [
            from_array(table, "table"),
            from_array(np.array([-1]), "last"),
            from_array(np.array([1]), "axis"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert fuse(save(model, tmp_path), calibrator(), tmp_path / "out.onnx").proof.rows == 80


def _wrong_classes(model: ModelProto) -> None:
    """Nothing to change: the calibrator itself is wrong."""


def _integers(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("ArgMax", ["scores"], ["label"], axis=1, keepdims=1))
    model.graph.output[0].CopyFrom(typed("label", TensorProto.INT64, ["N", 1]))


def _one_axis(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("ReduceMax", ["scores"], ["top"], keepdims=0))
    model.graph.output[0].CopyFrom(typed("top", TensorProto.FLOAT, []))


def _no_shape(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Shape", ["scores"], ["shape"]))
    model.graph.node.append(helper.make_node("Cast", ["shape"], ["top"], to=TensorProto.FLOAT))
    model.graph.output[0].CopyFrom(typed("top", TensorProto.FLOAT, None))


def _zip_map(model: ModelProto) -> None:
    node = helper.make_node(
        "ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=range(CLASSES)
    )
    model.graph.node.append(node)
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    value = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
    model.graph.output[0].CopyFrom(
        helper.make_value_info("maps", helper.make_sequence_type_proto(value))
    )


def _two_outputs(model: ModelProto) -> None:
    model.graph.output.append(typed("x", TensorProto.FLOAT, ["N", FEATURES]))


def _unknown_operator(model: ModelProto) -> None:
    model.graph.node[0].op_type = "Calibrate"


def _nan(model: ModelProto) -> None:
    model.graph.node.append(helper.make_node("Sub", ["scores", "scores"], ["zero"]))
    model.graph.node.append(helper.make_node("Div", ["zero", "zero"], ["nan"]))
    model.graph.output[0].name = "nan"


def _fused_already(model: ModelProto) -> None:
    entry = model.metadata_props.add()
    entry.key, entry.value = "recalib.core.card", "{}"


@pytest.mark.parametrize(
    ("change", "classes", "line"),
    [
        (_wrong_classes, 3, "model output scores: found 4 classes; accepted: the calibrator's 3"),
        (_integers, 4, "model output label: found int64; accepted: float"),
        (_one_axis, 4, "model output top: found 0 axes; accepted: 2 axes"),
        (_no_shape, 4, r"model output top: found shape \(2,\); accepted: \(N, 4\)"),
        (_zip_map, 4, "model output maps: found sequence; accepted: a tensor"),
        (_two_outputs, 4, "from: found 2 outputs of the model; accepted: .* scores, x"),
        (_unknown_operator, 4, "onnxruntime cannot load .*Calibrate"),
        (_nan, 4, "model output nan: found NaN or inf"),
        (_fused_already, 4, "holds a calibrator already"),
    ],
)
def test_unsupported_model_is_refused(change, classes: int, line: str, tmp_path: Path) -> None:
    """One line that says why, and nothing written."""
    model = classifier()
    change(model)
    path = save(model, tmp_path)
    with pytest.raises(InputError, match=line):
        fuse(path, calibrator(classes=classes), tmp_path / "out.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_unproven_graph_is_not_written(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph that is not the calibrator's: one temperature for another, a ten-thousandth away."""
    right = calibrator()
    near = Calibrator({"temperature": right.parameters["temperature"] * (1 + 1e-4)}, right.card)
    monkeypatch.setattr(right, "to_onnx", near.to_onnx)
    with pytest.raises(InputError, match=r"away from the calibrator, \S+ times what rounding"):
        fuse(save(classifier(dtype=FLOATS[dtype]), tmp_path), right, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("data", [b"", b"no onnx", b"\x08", bytes(range(256))])
def test_damaged_model_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(InputError, match=r"model: found .*; accepted: "):
        fuse(tmp_path / "model.onnx", calibrator(), tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_truncated_model_is_refused(share: float, tmp_path: Path) -> None:
    content = classifier().SerializeToString()
    (tmp_path / "model.onnx").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputError, match=r"model"):
        fuse(tmp_path / "model.onnx", calibrator(), tmp_path / "out.onnx")


def test_unusable_files_are_refused(tmp_path: Path) -> None:
    path = save(classifier(), tmp_path)
    with pytest.raises(InputError, match=r"model: .*No such file"):
        fuse(tmp_path / "none.onnx", calibrator(), tmp_path / "out.onnx")
    with pytest.raises(InputError, match=r"output: .* the model itself"):
        fuse(path, calibrator(), path)
    with pytest.raises(InputError, match="output"):
        fuse(path, calibrator(), tmp_path / "none" / "out.onnx")


def test_old_model_with_external_weights_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    old = classifier(opset=11)
    onnx.save(old, path, save_as_external_data=True, location="w", size_threshold=0)
    with pytest.raises(UnsupportedError, match="opset 11 with weights in other files"):
        fuse(path, calibrator(), tmp_path / "out.onnx")


def test_calibrator_of_logits_refuses_probabilities(tmp_path: Path) -> None:
    """Where a map sees shifts, the logarithm of a softmax is not the logits it was fitted on."""
    softmax = helper.make_node("Softmax", ["scores"], ["p"], axis=1)
    output = [typed("p", TensorProto.FLOAT, ["N", CLASSES])]
    path = save(classifier(more=[softmax], outputs=output), tmp_path)
    with pytest.raises(InputError, match="fitted on logits"):
        fuse(path, calibrator("class_temperature"), tmp_path / "o.onnx", input="probabilities")


def test_fuse_is_public() -> None:
    assert recalib.fuse is fuse
