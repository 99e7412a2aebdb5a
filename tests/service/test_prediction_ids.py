"""Prediction ids in answers: each format that can hold them, sampling, and validity."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recalib.core.group_numbers import group_number
from recalib.errors import UnavailableError
from recalib.registry import Registry
from recalib.settings import Settings
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service
from tests.service.stubs import Rpc
from tests.service.test_bad_input import check
from tests.service.test_labels import outcomes, stored

pytestmark = pytest.mark.sqlite_only

URL = "/v1/models/digits/calibrate"
JSON, NPY, NPZ = "application/json", "application/x-npy", "application/x-npz"
ARROW = "application/vnd.apache.arrow.stream"
LOGITS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0], [0, -np.inf, 0, 1]], np.float32)


def ask(service: Service, accept: str = JSON, rows: int = 3, **query: Any) -> Any:
    logits = [[None if x == -np.inf else x for x in row] for row in LOGITS.tolist()]
    body = {"logits": (logits * rows)[:rows]}
    return service.client.post(URL, json=body, params=query, headers={"Accept": accept})


def read(answer: Any) -> tuple[np.ndarray, list[str | None]]:
    """Return the probabilities and ids of an answer in any format that has both."""
    assert answer.status_code == 200, answer.text
    kind = answer.headers["content-type"]
    if kind == JSON:
        body = answer.json()
        return np.array(body["probabilities"], np.float32), body["prediction_ids"]
    if kind == NPZ:
        with np.load(io.BytesIO(answer.content)) as file:
            ids = [
                prediction_id.decode() or None for prediction_id in file["prediction_ids"].tolist()
            ]
            return file["probabilities"], ids
    table = pa.ipc.open_stream(answer.content).read_all()
    flat = table["probabilities"].combine_chunks().values.to_numpy()
    return flat.reshape(len(table), -1), table["prediction_ids"].to_pylist()


@pytest.mark.parametrize("form", [JSON, NPZ, ARROW])
def test_id_encodes_the_prediction(ready: Service, form: str) -> None:
    """A label finds its prediction: the version, the class and both confidences of it."""
    probabilities, ids = read(ask(ready, form, ids=1))
    assert (
        outcomes(ready, *((prediction_id, 3) for prediction_id in ids if prediction_id))
        == ["accepted"] * 3
    )
    rows = {row.predicted: row for row in stored(ready)}
    assert len(rows) == 2  # rows 0 and 2 have the same class
    for logits, calibrated in zip(LOGITS[:2], probabilities[:2], strict=True):
        best = int(calibrated.argmax())
        softmax = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum()
        (row,) = [
            row
            for row in stored(ready)
            if row.predicted == best and row.confidence == calibrated[best]
        ]
        assert row.raw_confidence == pytest.approx(softmax[best], rel=1e-6)
        assert (row.version, row.label, row.disputed) == (1, 3, False)


def test_json_and_npz_have_ids_by_default(ready: Service) -> None:
    """Arrow has them on request, and .npy cannot hold them."""
    assert len(read(ask(ready))[1]) == 3
    assert None not in read(ask(ready, NPZ))[1]
    table = pa.ipc.open_stream(ask(ready, ARROW).content).read_all()
    assert table.column_names == ["probabilities"]
    assert ask(ready, NPY).status_code == ask(ready, NPY, ids=0).status_code == 200
    refusal = ask(ready, NPY, ids=1)
    check(refusal, 406, "Accept")
    assert NPZ in refusal.json()["errors"][0]["accepted"]


def test_ids_can_be_turned_off(ready: Service) -> None:
    assert "prediction_ids" not in ask(ready, ids=0).json()
    with np.load(io.BytesIO(ask(ready, NPZ, ids="0.0").content)) as file:
        assert file.files == ["probabilities"]


@pytest.mark.parametrize("form", [JSON, NPZ, ARROW])
def test_each_request_samples_its_rows(ready: Service, form: str) -> None:
    """400 rows at a share of 0.25: outside of 60 to 140 once in 10^5 times, for each format."""
    samples = []
    for _ in range(8):
        _, ids = read(ask(ready, form, rows=50, ids=0.25))
        assert len(ids) == 50
        samples.append([prediction_id is not None for prediction_id in ids])
    assert 60 <= sum(map(sum, samples)) <= 140
    assert len({tuple(sample) for sample in samples}) == 8
    present = [prediction_id for prediction_id in ids if prediction_id]
    assert outcomes(ready, *((item, 0) for item in present)) == ["accepted"] * len(present)


def test_top_k_answers_have_ids(ready: Service) -> None:
    body = ask(ready, top_k=2).json()
    assert set(body) == {"top_k", "calibrator", "prediction_ids"}
    assert outcomes(ready, (body["prediction_ids"][0], 1)) == ["accepted"]


@pytest.mark.parametrize("share", ["2", "-1", "nan", "inf", "yes", "1_0", "0x1", " 1", "1e9999"])
def test_invalid_shares_are_rejected(shared: Service, share: str) -> None:
    check(ask(shared, ids=share), 422, "ids", share)


@pytest.mark.parametrize("share", ["1", "1.0", "0.5", ".5", "5e-1", "1e-9", "0", "-0"])
def test_share_accepts_any_number_format(shared: Service, share: str) -> None:
    assert ask(shared, ids=share).status_code == 200


def test_default_share_is_a_server_setting(ready: Service, settings: Settings) -> None:
    settings.prediction_ids = 0.0
    assert "prediction_ids" not in ask(ready).json()
    assert len(ask(ready, ids=1).json()["prediction_ids"]) == 3


def test_probabilities_are_returned_without_a_signing_key(
    ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry fails before the first id; the server reads it only once."""
    assert ask(ready, ids=0).status_code == 200
    queries = []

    def gone(self: Registry) -> None:
        queries.append(1)
        raise UnavailableError("the database cannot be reached")

    monkeypatch.setattr(Registry, "reading", gone)
    for _ in range(5):
        assert ask(ready).json()["prediction_ids"] == [None] * 3
    assert len(queries) == 1


def test_new_key_signs_and_old_key_verifies(ready: Service) -> None:
    """The process reads new keys every few seconds."""
    (old, *_) = read(ask(ready))[1]
    with ready.registry.transaction() as tx:
        tx.signing_keys.rotate()
    ready.client.app.state.recalib.ids.submit_refresh().result(60)
    (new, *_) = read(ask(ready))[1]
    assert old is not None
    assert new is not None
    assert old[:6] != new[:6]  # format and key
    assert outcomes(ready, (old, 0), (new, 0)) == ["accepted", "accepted"]


INFER = "/v2/models/digits/infer"


def question(*outputs: dict[str, Any]) -> dict[str, Any]:
    tensor = {"name": "logits", "datatype": "FP32", "shape": [2, 4], "data": LOGITS[:2].tolist()}
    return {"inputs": [tensor], "outputs": list(outputs)}


def test_inference_returns_ids_on_request(ready: Service) -> None:
    """They have type BYTES: text in JSON, or length-prefixed bytes after the JSON."""
    plain = ready.client.post(INFER, json=question()).json()["outputs"]
    assert [item["name"] for item in plain] == ["probabilities"]
    request = question({"name": "prediction_ids"}, {"name": "probabilities"})
    ids, probabilities = ready.client.post(INFER, json=request).json()["outputs"]
    assert probabilities == plain[0]
    assert (ids["name"], ids["datatype"], ids["shape"]) == ("prediction_ids", "BYTES", [2])
    assert outcomes(ready, *((item, 2) for item in ids["data"])) == ["accepted"] * 2

    sized = {"binary_data": True}
    in_bytes = question({"name": "probabilities"}, {"name": "prediction_ids", "parameters": sized})
    answer = ready.client.post(INFER, json=in_bytes)
    size = int(answer.headers["Inference-Header-Content-Length"])
    outputs, tail = json.loads(answer.content[:size])["outputs"], answer.content[size:]
    assert outputs[0] == plain[0]
    assert outputs[1]["parameters"] == {"binary_data_size": len(tail)}
    texts = []
    while tail:
        length = int.from_bytes(tail[:4], "little")
        texts.append(tail[4 : 4 + length].decode())
        tail = tail[4 + length :]
    assert outcomes(ready, *((text, 2) for text in texts)) == ["accepted"] * 2

    ids_only = ready.client.post(INFER, json=question({"name": "prediction_ids"})).json()["outputs"]
    assert [item["name"] for item in ids_only] == ["prediction_ids"]


@pytest.mark.parametrize("names", [["prediction_ids"] * 2, ["probabilities", "other"]])
def test_inference_rejects_unknown_outputs(shared: Service, names: list[str]) -> None:
    answer = shared.client.post(INFER, json=question(*({"name": name} for name in names)))
    assert answer.status_code == 400
    assert "prediction_ids" in answer.json()["error"]


def test_labels_have_the_group_of_their_request(ready: Service, rpc: Rpc) -> None:
    """Of all four ways to calibrate; a group that comes with a label replaces it."""
    ids = read(ask(ready, rows=2, group="a"))[1]
    request = question({"name": "prediction_ids"})
    request["parameters"] = {"group": "b"}
    ids += ready.client.post(INFER, json=request).json()["outputs"][0]["data"][:1]
    matrix = pb.Matrix(rows=1, classes=4, values=LOGITS[0])
    message = pb.CalibrateRequest(model="digits", matrix=matrix, input=pb.INPUT_LOGITS, ids=1)
    message.group = "c"
    ids += rpc.calibration.calibrate(message).prediction_ids
    labels = [{"prediction_id": id, "label": 1} for id in ids]
    labels[1]["group"] = "d"
    answer = ready.client.post("/v1/models/digits/labels", json=labels)
    assert answer.json()["counts"]["accepted"] == 4, answer.text
    assert {row.group_number for row in stored(ready)} == {group_number(name) for name in "abcd"}


def test_a_group_without_ids_is_rejected(shared: Service) -> None:
    answer = ask(shared, ids=0, group="a")
    assert answer.status_code == 422
    assert "group" in answer.text
