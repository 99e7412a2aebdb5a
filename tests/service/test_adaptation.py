"""Answers adapted to label shift while serving: over REST, gRPC and V2, in ids and labels."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from recalib.registry import Model
from recalib.shift import ShadowState, adapt
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from service.serving.loaded_calibrators import LoadedCalibrators
from tests.registry.scenes import labels_between
from tests.service.conftest import NPY, Service, npy
from tests.service.stubs import Rpc
from tests.service.test_grpc_inference import question as v2_question
from tests.service.test_grpc_inference import tensor as v2_tensor
from tests.service.test_grpc_inference import values
from tests.service.test_grpc_workflow import array
from tests.service.test_inference import tensor
from tests.training.watched import CAPTURING, a_champion

pytestmark = pytest.mark.sqlite_only

URL = "/v1/models/resnet/calibrate"
LOGITS = np.array([[0.0, 0.6, -2.0, 0.5], [0.4, 0.0, 0.25, -1.0]], np.float32)
STATE = ShadowState(3, 1e9, (0.5, 1.0, 1.0, 4.0), (0.1, 0.2, 0.2, 0.5), 2_000, 0.1, applied=0.75)
SETTINGS = replace(CAPTURING, adaptation="label_shift")


def declare(service: Service, model: Model, *states: ShadowState, version: int = 1) -> None:
    with service.registry.transaction() as tx:
        tx.adaptations.add(model, version, [msgspec.to_builtins(state) for state in states])


def refresh(service: Service) -> LoadedCalibrators:
    """Let the process look at the registry; return its calibrators."""
    app: Any = service.client.app
    calibrators: LoadedCalibrators = app.state.recalib.calibrators
    assert calibrators.refresh()
    return calibrators


@pytest.fixture
def plain(service: Service) -> np.ndarray:
    """The answers of a model before the first state, (2, 4)."""
    model = a_champion(service.registry, SETTINGS)
    answer = service.client.post(URL, json={"logits": LOGITS.tolist()}).json()
    assert "adaptation" not in answer["calibrator"]
    declare(service, model, STATE)
    refresh(service)
    return np.array(answer["probabilities"])


def test_every_format_has_the_adapted_answer_and_its_state(
    service: Service, rpc: Rpc, plain: np.ndarray
) -> None:
    """(1 − a) p + a q with q_k ∝ p_k w_k: another class is the top one of row 0."""
    weighted = plain * STATE.weights
    expected = 0.25 * plain + 0.75 * weighted / weighted.sum(axis=1, keepdims=True)
    assert expected.argmax(axis=1).tolist() != plain.argmax(axis=1).tolist()

    answer = service.client.post(URL, json={"logits": LOGITS.tolist()})
    np.testing.assert_allclose(answer.json()["probabilities"], expected, atol=1e-6)
    assert answer.json()["calibrator"]["adaptation"] == 3
    assert answer.headers["recalib-adaptation"] == "3"

    def ask(accept: str) -> Any:
        return service.client.post(URL, content=npy(LOGITS), headers={**NPY, "Accept": accept})

    for accept in ("application/x-npy", "application/x-npz"):
        answer = ask(accept)
        assert answer.headers["recalib-adaptation"] == "3"
        content: Any = np.load(io.BytesIO(answer.content))
        found = content if accept.endswith("npy") else content["probabilities"]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    table = pa.ipc.open_stream(ask("application/vnd.apache.arrow.stream").content).read_all()
    assert msgspec.json.decode(table.schema.metadata[b"calibrator"])["adaptation"] == 3

    matrix = pb.Matrix(rows=2, classes=4, values=LOGITS.reshape(-1))
    reply = rpc.calibration.calibrate(pb.CalibrateRequest(model="resnet", matrix=matrix))
    np.testing.assert_allclose(array(reply), expected, atol=1e-6)
    assert reply.calibrator.adaptation == 3

    body = {"inputs": [tensor(LOGITS.tolist(), shape=[2, 4])]}
    v2 = service.client.post("/v2/models/resnet/infer", json=body).json()
    assert v2["parameters"] == {"adaptation": 3}
    np.testing.assert_allclose(np.reshape(v2["outputs"][0]["data"], (2, 4)), expected, atol=1e-6)
    rows = v2_tensor(LOGITS, shape=[2, 4])
    v2_reply = rpc.v2.model_infer(v2_question(rows, model_name="resnet"))
    assert v2_reply.parameters["adaptation"].int64_param == 3
    np.testing.assert_allclose(values(v2_reply).reshape(2, 4), expected, atol=1e-6)


def test_label_scores_the_answer_that_was_given(service: Service, plain: np.ndarray) -> None:
    """Its row has the confidence and the class of the adapted answer, and the state's number."""
    ids = service.client.post(f"{URL}?ids=1", json={"logits": LOGITS.tolist()}).json()
    labels = [{"prediction_id": id, "label": 3} for id in ids["prediction_ids"]]
    answer = service.client.post("/v1/models/resnet/labels", json=labels)
    assert answer.status_code == 200, answer.text
    with service.registry.reading() as tx:
        stored = labels_between(tx, tx.models.get("resnet"), 1, 0, 1e11)
    assert [row.adaptation for row in stored] == [3, 3]
    served = adapt(plain, np.array(STATE.weights), STATE.applied)
    np.testing.assert_allclose(
        sorted(row.confidence for row in stored), sorted(served.max(axis=1)), atol=1e-6
    )
    assert {row.predicted for row in stored} == set(served.argmax(axis=1).tolist())


def test_states_change_and_end_between_two_looks_at_the_registry(
    service: Service, plain: np.ndarray
) -> None:
    """Also in a process that starts later; a version that is no champion is not adapted."""

    def number() -> int | None:
        refresh(service)
        answer = service.client.post(URL, json={"logits": LOGITS.tolist()}).json()
        found: int | None = answer["calibrator"].get("adaptation")
        return found

    assert number() == 3
    with service.registry.reading() as tx:
        model = tx.models.get("resnet")
    declare(service, model, STATE, msgspec.structs.replace(STATE, number=4, since=2e9))
    assert number() == 4
    other = LoadedCalibrators(service.registry, 1 << 24, 1.0)
    other.load("resnet")
    other.refresh()
    loaded = other.get("resnet")
    assert loaded is not None
    assert loaded.adaptation is not None
    assert loaded.adaptation.number == 4
    with service.registry.transaction() as tx:
        tx.models.set_monitoring("resnet", replace(SETTINGS, adaptation="shadow"))
    assert number() is None
    with service.registry.transaction() as tx:
        tx.models.set_monitoring("resnet", SETTINGS)
    assert number() == 4


def test_a_damaged_state_leaves_other_models_adapted(service: Service) -> None:
    """Its own model answers without adaptation; nothing else fails."""
    numbers = {}
    for name, state in (("a", {"number": 3, "since": 1.0}), ("b", msgspec.to_builtins(STATE))):
        model = a_champion(service.registry, SETTINGS, name)
        service.client.post(f"/v1/models/{name}/calibrate", json={"logits": LOGITS.tolist()})
        with service.registry.transaction() as tx:
            tx.adaptations.add(model, 1, [state])
    refresh(service)
    for name in "ab":
        url = f"/v1/models/{name}/calibrate"
        answer = service.client.post(url, json={"logits": LOGITS.tolist()}).json()
        numbers[name] = answer["calibrator"].get("adaptation")
    assert numbers == {"a": None, "b": 3}


def test_sets_are_those_of_the_answer_without_adaptation(service: Service) -> None:
    model = a_champion(service.registry, SETTINGS, sets=True)

    def ask() -> Any:
        body = {"logits": LOGITS.tolist()}
        return service.client.post(f"{URL}?sets=true", json=body).json()

    before = ask()
    declare(service, model, STATE)
    refresh(service)
    after = ask()
    assert after["sets"] == before["sets"]
    assert after["probabilities"] != before["probabilities"]
