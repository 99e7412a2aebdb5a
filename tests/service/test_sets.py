"""Fits and uploads of prediction sets, and their refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import recalib
from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.files.examples import write_npz
from tests.service.conftest import NPZ, Service, npz
from tests.service.stubs import Rpc
from tests.service.test_bad_input import check
from tests.service.test_grpc_workflow import fitted as fitted_by_rpc
from tests.service.test_outputs import LOGITS, members_of
from tests.service.test_uploaded_calibrators import upload_json

pytestmark = pytest.mark.sqlite_only


def test_model_without_champion_has_no_sets(service: Service) -> None:
    service.model()
    check(service.calibrate(LOGITS, sets="true"), 422, "sets", "no champion of model 'digits'")
    service.model("raw", 4, serve_uncalibrated=True)
    body, query = write_npz(LOGITS, None), {"sets": "true"}
    answer = service.client.post("/v1/models/raw/batches", content=body, headers=NPZ, params=query)
    check(answer, 422, "sets", "no champion of model 'raw'")


def test_uploaded_thresholds_are_served(ready: Service, data: Any) -> None:
    calibrator = recalib.fit(*data, sets="lac", coverage=0.7)
    body = upload_json(calibrator, promote=True)
    assert ready.client.post("/v1/models/digits/calibrators", json=body).status_code == 202
    ready.work()
    answer = ready.calibrate(LOGITS, sets="true").json()
    np.testing.assert_array_equal(members_of(answer["sets"]), calibrator.predict_set(LOGITS))


def test_fits_have_all_options_of_sets(ready: Service, rpc: Rpc) -> None:
    """A penalty of 0 and no rank without it are values, not fields that are not set."""
    options = {"sets": "raps", "sets_folds": 3, "sets_penalty": 0.0, "sets_k_reg": 0}
    fitted_by_rpc(rpc, ready, sets_by="class", promote=pb.PROMOTE_ALWAYS, **options)
    assert ready.fitted(sets_by="class", **options)["state"] == "succeeded"
    for version in (2, 3):
        path = f"/v1/models/digits/calibrators/{version}"
        sets = ready.client.get(path).json()["card"]["sets"]
        assert (sets["method"], sets["coverage"], sets["by"]) == ("raps", 0.9, "class")
        assert (sets["penalty"], sets["k_reg"], sets["folds"]) == (0.0, 0, 3)
        assert (sets["finite_sample"], sets["rows"], len(sets["thresholds"])) == (False, 600, 4)


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"coverage": 0.9}, "coverage", "only together with the name of a method"),
        ({"sets": "lac", "coverage": 1.0}, "coverage", "less than 1"),
        ({"sets": "best"}, "sets", "'lac', 'aps' or 'raps'"),
        ({"sets_by": "class"}, "sets_by", "only together with sets"),
        ({"sets_folds": 5}, "sets_folds", "only together with sets"),
        ({"sets": "lac", "sets_folds": 601}, "sets_folds", "2 to 600"),
        ({"sets": "lac", "sets_folds": 1}, "sets_folds", "greater than or equal to 2"),
        ({"sets": "aps", "sets_penalty": 0.1}, "sets_penalty", "only with sets of raps"),
        ({"sets_k_reg": 3}, "sets_k_reg", "only with sets of raps"),
        ({"sets": "raps", "sets_penalty": -0.1}, "sets_penalty", "greater than or equal to 0"),
    ],
)
def test_impossible_fits_are_refused(
    ready: Service, options: dict[str, Any], field: str, message: str
) -> None:
    answer = ready.ask_fit(**options)
    check(answer, 422, field)
    assert message in answer.text


def test_multilabel_model_has_no_sets(service: Service) -> None:
    service.model("tagger", 3, task="multilabel")
    rng = np.random.default_rng(0)
    service.upload(npz(rng.normal(size=(90, 3)), rng.random((90, 3)) < 0.5), model="tagger")
    answer = service.ask_fit("tagger", map="platt", sets="lac")
    check(answer, 422, "task")
    assert "they need exchangeable rows of one label each" in answer.json()["detail"]
