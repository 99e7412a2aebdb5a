"""Fits of thresholds of rejection, and their refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.grpc.generated.recalib.v1 import recalib_pb2 as pb
from tests.service.conftest import Service
from tests.service.stubs import Rpc
from tests.service.test_bad_input import check
from tests.service.test_grpc_workflow import fitted as fitted_by_rpc

pytestmark = pytest.mark.sqlite_only


def test_rpc_fits_a_threshold(ready: Service, rpc: Rpc) -> None:
    fitted_by_rpc(rpc, ready, max_risk=0.5, promote=pb.PROMOTE_ALWAYS)
    card = ready.client.get("/v1/models/digits/calibrators/2").json()["card"]
    rule = card["rejection"]
    assert (rule["risk"], rule["sureness"], rule["rows"]) == (0.5, 0.9, 300)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"max_risk": 1.0}, "less than 1"),
        ({"max_risk": 0.1, "sets": "lac", "sets_folds": 5}, "only without sets_folds"),
    ],
)
def test_bad_request_of_a_fit_is_refused(
    ready: Service, fields: dict[str, Any], found: str
) -> None:
    answer = ready.ask_fit("digits", **fields)
    check(answer, 422, "max_risk")
    assert found in answer.json()["detail"]


def test_risk_that_no_threshold_keeps_fails_the_job(ready: Service) -> None:
    job = ready.fitted(max_risk=1e-6)
    assert job["state"] == "failed"
    assert "max_risk: found 1e-06 with sureness 0.9 on 300 rows" in json.dumps(job)
