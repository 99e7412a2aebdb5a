"""Calibrators as torch modules: every map and option of the contract tests."""

from __future__ import annotations

import copy
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import recalib
from recalib.errors import InputError
from recalib.maps import MAPS, Map
from recalib.torch import CalibratedModule, CalibratorModule
from tests.fitting.conftest import draw
from tests.maps.conftest import some_logits
from tests.maps.test_contract import ALL, calibrator_of, log_reference, next_to_a_jump

LOGITS, LABELS = draw(200, 3, 2.0)
FITTED = recalib.fit(LOGITS, LABELS, "vector")


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.layer(features)


def masked_logits(dtype: type = np.float64) -> np.ndarray:
    """Return logits (40, 10) with masked classes, and one row with a single class."""
    logits = some_logits(40, 10, dtype=dtype)
    logits[np.random.default_rng(2).random(logits.shape) < 0.3] = -np.inf
    logits[:, 3] = 1.0
    logits[0, :3] = logits[0, 4:] = -np.inf
    return logits


def filled(logits: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(logits), logits, -50.0)


@pytest.mark.parametrize("the_map", ALL)
def test_module_agrees_with_predict(the_map: Map) -> None:
    """float64 to rounding, float32 to 1e-6, with masks; narrower types as their float32."""
    calibrator = calibrator_of(the_map, 10)
    module = calibrator.to_torch()
    for logits in (some_logits(300, 10), masked_logits()):
        result = module(torch.tensor(logits))
        assert result.dtype == torch.float64
        np.testing.assert_allclose(result, calibrator.predict(logits, input="logits"), rtol=1e-10)
        narrow = logits.astype(np.float32)
        # The bound of rounded logits; see `tests/maps/test_contract.py`.
        expected = calibrator.predict_float64(narrow)
        logs = log_reference(the_map, calibrator.parameters, narrow.astype(np.float64))
        finite = np.where(np.isfinite(logs), logs, logs.max(axis=1, keepdims=True))
        span = np.ptp(finite, axis=1, keepdims=True)
        difference = np.abs(module(torch.tensor(narrow)).numpy() - expected)
        close = difference <= 1e-6 * (1 + span) * expected + 1e-6
        if not the_map.continuous:
            close |= next_to_a_jump(the_map, calibrator.parameters, filled(narrow))
        assert close.all()
        for dtype in (torch.float16, torch.bfloat16):
            rounded = torch.tensor(logits).to(dtype)
            assert torch.equal(module(rounded), module(rounded.float()))
            assert module(rounded).dtype == torch.float32


@pytest.mark.parametrize("the_map", ALL)
def test_gradients_are_those_of_finite_differences_and_finite_under_masks(the_map: Map) -> None:
    module = calibrator_of(the_map, 10).to_torch()
    logits = torch.tensor(some_logits(3, 10), requires_grad=True)
    of_steps = the_map.name == "histogram_binning" and the_map.target == "one_vs_rest"  # type: ignore[attr-defined]
    if of_steps or the_map.name == "venn_abers":
        assert not module(logits).requires_grad  # a step function of every logit
        return
    assert torch.autograd.gradcheck(module, logits)
    masked = torch.tensor(masked_logits(), requires_grad=True)
    module.log_probabilities(masked)[:, 3].sum().backward()
    assert torch.isfinite(masked.grad).all()


@pytest.mark.parametrize("the_map", ALL)
def test_log_probabilities_agree_with_the_reference(the_map: Map) -> None:
    calibrator = calibrator_of(the_map, 10)
    logits = masked_logits()
    result = calibrator.to_torch().log_probabilities(torch.tensor(logits))
    expected = log_reference(the_map, calibrator.parameters, logits)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("the_map", ALL)
def test_no_operation_leaves_the_device(the_map: Map) -> None:
    """Fake tensors raise where an operation mixes devices."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        module = calibrator_of(the_map, 10).to_torch().to("meta")
        logits = torch.empty(4, 10, dtype=torch.bfloat16, device="meta")
        assert module(logits).device.type == "meta"
        assert module.log_probabilities(logits).device.type == "meta"


@pytest.mark.slow
@pytest.mark.parametrize("the_map", ALL)
def test_every_map_is_exported_and_compiled(the_map: Map) -> None:
    module = calibrator_of(the_map, 10).to_torch()
    first, second = (torch.tensor(some_logits(rows, 10, dtype=np.float32)) for rows in (50, 7))
    rows = torch.export.Dim("rows")
    program = torch.export.export(module, (first,), dynamic_shapes=({0: rows},))
    torch.testing.assert_close(program.module()(second), module(second), rtol=0, atol=1e-7)
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    results = []
    for function in (compiled, module):
        logits = first.clone().requires_grad_()
        probabilities = function(logits)
        if probabilities.requires_grad:
            probabilities[:, 0].sum().backward()
        results.append((probabilities.detach(), logits.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, while it loads inductor
def test_inductor_agrees() -> None:
    calibrator = calibrator_of(MAPS["isotonic"](), 10)
    module = calibrator.to_torch()
    torch._dynamo.reset()
    logits = torch.tensor(masked_logits(np.float32))
    compiled = torch.compile(module, fullgraph=True)(logits)
    # The slopes of isotonic curves, up to 10, multiply rounding errors of log-odds.
    torch.testing.assert_close(compiled, module(logits), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch.onnx
def test_classifier_and_calibrator_are_exported_to_onnx() -> None:
    """With the shapes and names that any module with one argument `x` takes."""
    import onnxruntime

    module = CalibratedModule(Classifier(), recalib.fit(LOGITS, LABELS, "isotonic")).eval()
    rows = torch.export.Dim("rows")
    torch.export.export(module, (torch.randn(5, 4),), dynamic_shapes=({0: rows},))
    program = torch.onnx.export(
        module,
        (torch.randn(5, 4),),
        dynamo=True,
        dynamic_shapes={"x": {0: rows}},
        output_names=["probabilities"],
        verbose=False,
    )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    features = 5 * torch.randn(9, 4)
    (result,) = session.run(["probabilities"], {"x": features.numpy()})
    np.testing.assert_allclose(result, module(features).detach(), atol=1e-5)


def test_parameters_are_buffers_and_round_trip(tmp_path) -> None:
    """They are saved with the classifier, and no optimiser changes them."""
    module = CalibratedModule(Classifier(), FITTED)
    assert {name for name, _ in module.named_parameters()} == {
        "model.layer.weight",
        "model.layer.bias",
    }
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = CalibratedModule(Classifier(), recalib.fit(LOGITS + LABELS[:, None], LABELS, "vector"))
    features = torch.randn(5, 4)
    assert not torch.equal(other(features), module(features))
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for same in (other, copy.deepcopy(module)):
        assert torch.equal(same(features), module(features))
    assert torch.equal(other.calibrator.arrays.scale, torch.tensor(FITTED.parameters["scale"]))


def test_half_precision_rounds_no_parameter() -> None:
    logits = torch.tensor(LOGITS)
    expected = FITTED.to_torch()(logits)
    for module in (FITTED.to_torch().half(), FITTED.to_torch().to(torch.bfloat16)):
        assert torch.equal(module(logits), expected)
    single = FITTED.to_torch().float()
    assert {value.dtype for value in single.buffers()} == {torch.float32}
    torch.testing.assert_close(single(logits), expected, rtol=1e-5, atol=1e-6)


def test_autocast_computes_in_float32() -> None:
    calibrator = recalib.fit(LOGITS, LABELS, "matrix")
    module, logits = calibrator.to_torch(), torch.tensor(LOGITS, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(module(logits), module.eval()(logits))
        probabilities = module(logits)
    assert torch.equal(probabilities, module(logits))


def test_leading_dimensions_are_kept() -> None:
    module = FITTED.to_torch()
    logits = torch.tensor(LOGITS)
    assert torch.equal(module(logits.reshape(4, 50, 3)), module(logits).reshape(4, 50, 3))
    assert torch.equal(module(logits[0]), module(logits)[0])
    assert module(logits[:0]).shape == (0, 3)


def test_module_takes_what_the_calibrator_was_fitted_on() -> None:
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    probabilities[0] = [0.0, 0.0, 1.0]
    calibrator = recalib.fit(probabilities, LABELS, "vector", input="probabilities")
    result = calibrator.to_torch()(torch.tensor(probabilities))
    np.testing.assert_allclose(result, calibrator.predict(probabilities), rtol=1e-10)
    with pytest.raises(InputError, match="fitted on probabilities"):
        calibrator.to_torch(input="logits")


def test_outputs_of_classifiers() -> None:
    """A tensor, an object with logits, or what the function takes out."""
    logits = torch.tensor(LOGITS)
    expected = FITTED.to_torch()(logits)

    class Returns(torch.nn.Module):
        def __init__(self, output: object) -> None:
            super().__init__()
            self.result = output

        def forward(self) -> object:
            return self.result

    assert torch.equal(CalibratedModule(Returns(logits), FITTED)(), expected)
    model = Returns(SimpleNamespace(logits=logits))
    assert torch.equal(CalibratedModule(model, FITTED)(), expected)
    pair = Returns((logits, None))
    assert torch.equal(CalibratedModule(pair, FITTED, output=lambda out: out[0])(), expected)
    with pytest.raises(InputError, match="model: found an output of type tuple"):
        CalibratedModule(pair, FITTED)()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(2, 4), r"logits: found shape \(2, 4\)"),
        (torch.tensor(1.0), r"logits: found shape \(\)"),
        (torch.zeros(2, 3, dtype=torch.int64), "logits: found dtype torch.int64"),
    ],
)
def test_invalid_tensors_are_rejected(values: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        FITTED.to_torch()(values)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("the_map", ALL)
def test_gpu_agrees_with_the_cpu(the_map: Map) -> None:
    module, logits = calibrator_of(the_map, 10).to_torch(), torch.tensor(masked_logits())
    expected = module(logits)
    assert isinstance(module, CalibratorModule)
    torch.testing.assert_close(module.to("cuda")(logits.to("cuda")).cpu(), expected)


def test_module_takes_tensors_only() -> None:
    module = recalib.fit(*draw(50, 3, 2.0)).to_torch()
    with pytest.raises(InputError, match="logits: found ndarray; accepted: a tensor"):
        module(np.zeros((2, 3)))
