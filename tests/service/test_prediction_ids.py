"""Ids in answers: in each form that has a place for them, for as many rows as asked, and good."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from recalib.errors import UnavailableError
from recalib.registry import Registry
from recalib.settings import Settings
from tests.service.conftest import Service
from tests.service.test_bad_input import check
from tests.service.test_labels import kept, outcomes

URL = "/v1/models/digits/calibrate"
JSON, NPY, NPZ = "application/json", "application/x-npy", "application/x-npz"
ARROW = "application/vnd.apache.arrow.stream"
LOGITS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0], [0, -np.inf, 0, 1]], np.float32)


def ask(service: Service, accept: str = JSON, rows: int = 3, **query: Any) -> Any:
    logits = [[None if x == -np.inf else x for x in row] for row in LOGITS.tolist()]
    body = {"logits": (logits * rows)[:rows]}
    return service.client.post(URL, json=body, params=query, headers={"Accept": accept})


def read(answer: Any) -> tuple[np.ndarray, list[str | None]]:
    """Return probabilities and ids of an answer in any form that has both."""
    assert answer.status_code == 200, answer.text
    kind = answer.headers["content-type"]
    if kind == JSON:
        found = answer.json()
        return np.array(found["probabilities"], np.float32), found["prediction_ids"]
    if kind == NPZ:
        with np.load(io.BytesIO(answer.content)) as file:
            ids = [one.decode() or None for one in file["prediction_ids"].tolist()]
            return file["probabilities"], ids
    table = pa.ipc.open_stream(answer.content).read_all()
    flat = table["probabilities"].combine_chunks().values.to_numpy()
    return flat.reshape(len(table), -1), table["prediction_ids"].to_pylist()


@pytest.mark.parametrize("form", [JSON, NPZ, ARROW])
def test_an_id_says_what_was_answered(ready: Service, form: str) -> None:
    """A label finds its prediction: version, class, and both of that class' confidences."""
    probabilities, ids = read(ask(ready, form, ids=1))
    assert outcomes(ready, *((one, 3) for one in ids if one)) == ["accepted"] * 3
    rows = {row.predicted: row for row in kept(ready)}
    assert len(rows) == 2  # rows 0 and 2 have the same class
    for logits, calibrated in zip(LOGITS[:2], probabilities[:2], strict=True):
        best = int(calibrated.argmax())
        softmax = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum()
        (row,) = [
            one
            for one in kept(ready)
            if one.predicted == best and one.confidence == calibrated[best]
        ]
        assert row.raw_confidence == pytest.approx(softmax[best], rel=1e-6)
        assert (row.version, row.label, row.disputed) == (1, 3, False)


def test_json_and_npz_have_ids_unasked(ready: Service) -> None:
    """Arrow has them when asked, and .npy has no place for them."""
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
def test_a_share_of_rows_is_drawn_anew_for_each_request(ready: Service, form: str) -> None:
    """400 rows at one in four: outside of 60 to 140 once in 10^5 times, for each form."""
    drawn = []
    for _ in range(8):
        _, ids = read(ask(ready, form, rows=50, ids=0.25))
        assert len(ids) == 50
        drawn.append([one is not None for one in ids])
    assert 60 <= sum(map(sum, drawn)) <= 140
    assert len({tuple(one) for one in drawn}) == 8
    given = [one for one in ids if one]
    assert outcomes(ready, *((one, 0) for one in given)) == ["accepted"] * len(given)


def test_the_likeliest_classes_come_with_ids_too(ready: Service) -> None:
    found = ask(ready, top_k=2).json()
    assert set(found) == {"top_k", "calibrator", "prediction_ids"}
    assert outcomes(ready, (found["prediction_ids"][0], 1)) == ["accepted"]


@pytest.mark.parametrize("share", ["2", "-1", "nan", "inf", "yes", "1_0", "0x1", " 1", "1e9999"])
def test_a_share_that_is_none(shared: Service, share: str) -> None:
    check(ask(shared, ids=share), 422, "ids", share)


@pytest.mark.parametrize("share", ["1", "1.0", "0.5", ".5", "5e-1", "1e-9", "0", "-0"])
def test_a_share_may_be_written_as_any_number(shared: Service, share: str) -> None:
    assert ask(shared, ids=share).status_code == 200


def test_the_server_says_how_many_get_ids_unasked(ready: Service, settings: Settings) -> None:
    settings.prediction_ids = 0.0
    assert "prediction_ids" not in ask(ready).json()
    assert len(ask(ready, ids=1).json()["prediction_ids"]) == 3


def test_without_a_key_probabilities_are_answered_all_the_same(
    ready: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry went away before the first id was made; nothing waits for it twice."""
    assert ask(ready, ids=0).status_code == 200
    asked = []

    def gone(self: Registry) -> None:
        asked.append(1)
        raise UnavailableError("the database cannot be reached")

    monkeypatch.setattr(Registry, "reading", gone)
    for _ in range(5):
        assert ask(ready).json()["prediction_ids"] == [None] * 3
    assert len(asked) == 1


def test_a_new_key_signs_and_the_old_one_verifies(ready: Service) -> None:
    """Once the process has looked; it does so every few seconds."""
    (old, *_) = read(ask(ready))[1]
    with ready.registry.transaction() as tx:
        tx.signing_keys.rotate()
    ready.client.app.state.recalib.ids.refreshing().result(60)
    (new, *_) = read(ask(ready))[1]
    assert old is not None
    assert new is not None
    assert old[:6] != new[:6]  # format and key
    assert outcomes(ready, (old, 0), (new, 0)) == ["accepted", "accepted"]


INFER = "/v2/models/digits/infer"


def question(*outputs: dict[str, Any]) -> dict[str, Any]:
    tensor = {"name": "logits", "datatype": "FP32", "shape": [2, 4], "data": LOGITS[:2].tolist()}
    return {"inputs": [tensor], "outputs": list(outputs)}


def test_inference_has_ids_as_an_output_that_is_asked_for(ready: Service) -> None:
    """Of type BYTES: text in JSON; behind it, each with its length before it."""
    plain = ready.client.post(INFER, json=question()).json()["outputs"]
    assert [one["name"] for one in plain] == ["probabilities"]
    both = question({"name": "prediction_ids"}, {"name": "probabilities"})
    ids, probabilities = ready.client.post(INFER, json=both).json()["outputs"]
    assert probabilities == plain[0]
    assert (ids["name"], ids["datatype"], ids["shape"]) == ("prediction_ids", "BYTES", [2])
    assert outcomes(ready, *((one, 2) for one in ids["data"])) == ["accepted"] * 2

    sized = {"binary_data": True}
    in_bytes = question({"name": "probabilities"}, {"name": "prediction_ids", "parameters": sized})
    answer = ready.client.post(INFER, json=in_bytes)
    size = int(answer.headers["Inference-Header-Content-Length"])
    found, tail = json.loads(answer.content[:size])["outputs"], answer.content[size:]
    assert found[0] == plain[0]
    assert found[1]["parameters"] == {"binary_data_size": len(tail)}
    texts = []
    while tail:
        length = int.from_bytes(tail[:4], "little")
        texts.append(tail[4 : 4 + length].decode())
        tail = tail[4 + length :]
    assert outcomes(ready, *((one, 2) for one in texts)) == ["accepted"] * 2

    alone = ready.client.post(INFER, json=question({"name": "prediction_ids"})).json()["outputs"]
    assert [one["name"] for one in alone] == ["prediction_ids"]


@pytest.mark.parametrize("names", [["prediction_ids"] * 2, ["probabilities", "other"]])
def test_inference_outputs_that_are_none(shared: Service, names: list[str]) -> None:
    answer = shared.client.post(INFER, json=question(*({"name": one} for one in names)))
    assert answer.status_code == 400
    assert "prediction_ids" in answer.json()["error"]
