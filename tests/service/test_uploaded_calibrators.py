"""Calibrators that were fitted elsewhere: what a server accepts, and what it refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.numpy

import recalib
from recalib import Calibrator
from recalib.client.calibrators import _row_digests
from recalib.drift import Cohort, Monitor
from recalib.drift.reference_histogram import reference_edges
from recalib.errors import InputError
from recalib.fitting import fit
from recalib.maps import MAPS
from service.calibrators.parameter_file import check_parameter_file
from tests.fitting.conftest import draw
from tests.service.conftest import Service, npz
from tests.service.test_bad_input import check

pytestmark = pytest.mark.sqlite_only

_LOGITS, _LABELS = draw(300, 4, 2.0, seed=3)


def upload_json(calibrator: Calibrator | bytes, **more: Any) -> dict[str, Any]:
    content = calibrator if isinstance(calibrator, bytes) else calibrator.to_bytes()
    return {"parameters": base64.b64encode(content).decode(), **more}


def with_card(calibrator: Calibrator, **changes: Any) -> Calibrator:
    return Calibrator(calibrator.parameters, msgspec.structs.replace(calibrator.card, **changes))


@pytest.mark.parametrize("name", MAPS)
def test_every_map_is_accepted(name: str) -> None:
    """Also in float32, which the probe compares."""
    fitted = fit(_LOGITS, _LABELS, name, measure=False)
    checked = check_parameter_file(fitted.to_bytes(), 4, None)
    np.testing.assert_array_equal(checked.predict(_LOGITS), fitted.predict(_LOGITS))


def test_claims_of_the_card_replace_nothing_that_is_measured() -> None:
    fitted = recalib.fit(_LOGITS, _LABELS, measure=True)
    card = check_parameter_file(fitted.to_bytes(), 4, ("a", "b", "c", "d")).card
    assert card.claimed is not None
    assert card.claimed.metrics == fitted.card.metrics
    assert card.claimed.calibration_error == fitted.card.calibration_error
    assert (card.metrics, card.calibration_error, card.confidences) == ({}, None, None)
    assert card.labels == ("a", "b", "c", "d")


def test_two_classes_without_a_comparison_are_monitored_by_the_positive_class() -> None:
    """The bins have no rows, so there is no PSI."""
    fitted = recalib.fit(*draw(300, 2, 2.0))
    card = check_parameter_file(fitted.to_bytes(), 2, None).card
    assert card.confidences is not None
    assert card.confidences.target == "positive_class"
    assert set(card.confidences.counts) == {0}
    monitor = Monitor(reference_edges(card), card.confidences.counts)
    monitor.add(0, 1, Cohort([1] + [0] * 14, [0.01], [0]))
    assert monitor.assess(1).evidence.psi is None


def _overflowing() -> Calibrator:
    fitted = recalib.fit(_LOGITS, _LABELS, "vector")
    return Calibrator({**fitted.parameters, "scale": np.full(4, 1e300)}, fitted.card)


def _edited(calibrator: Calibrator, card: Any = None, **changes: Any) -> bytes:
    """Return a file whose card has these fields, or is `card`, without a checksum."""
    card = json.dumps({**calibrator.card.to_dict(), **changes} if card is None else card)
    content: bytes = safetensors.numpy.save(dict(calibrator.parameters), metadata={"card": card})
    return content


def _flipped(fitted: Calibrator) -> bytes:
    content = fitted.to_bytes()
    return content[:-1] + bytes([content[-1] ^ 1])


def _of_three_classes(_: Calibrator) -> bytes:
    return fit(_LOGITS[:, :3], np.minimum(_LABELS, 2)).to_bytes()


def _without_rows(fitted: Calibrator) -> bytes:
    data = msgspec.structs.replace(fitted.card.data, rows=0)
    return with_card(fitted, data=data).to_bytes()


def _of_a_long_card(fitted: Calibrator) -> bytes:
    fit = msgspec.structs.replace(fitted.card.fit, warnings=("x" * 100,) * 700)
    return with_card(fitted, fit=fit).to_bytes()


_NO_FILE = "not a Recalib parameter file"

#: Changes of a valid file, and a part of their refusal.
_HOSTILE: dict[str, tuple[Callable[[Calibrator], bytes], str]] = {
    "nothing": (lambda fitted: b"", _NO_FILE),
    "text": (lambda fitted: b"hello" * 100, _NO_FILE),
    "truncated": (lambda fitted: fitted.to_bytes()[:-1], _NO_FILE),
    "a header of 2^64 bytes": (lambda fitted: b"\xff" * 8 + fitted.to_bytes()[8:], _NO_FILE),
    "a flipped bit": (_flipped, "checksum"),
    "another number of classes": (_of_three_classes, "a card of 3 classes"),
    "an empty card": (lambda fitted: _edited(fitted, {}), "the card cannot be read"),
    "an unknown map": (lambda fitted: _edited(fitted, map="evil"), "evil"),
    "an unknown objective": (lambda fitted: _edited(fitted, objective="evil"), "'evil'"),
    "an unknown option": (
        lambda fitted: _edited(fitted, objective_options={"evil": 1}),
        "options.evil",
    ),
    "no rows": (_without_rows, "data.rows 0"),
    "a time that is none": (
        lambda fitted: with_card(fitted, created_at="now").to_bytes(),
        "created_at",
    ),
    "a long card": (_of_a_long_card, "a card of 7"),
    "an overflow": (lambda fitted: _overflowing().to_bytes(), "overflow"),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_file_is_refused(name: str) -> None:
    change, reason = _HOSTILE[name]
    content = change(recalib.fit(_LOGITS, _LABELS))
    with pytest.raises(InputError) as raised:
        check_parameter_file(content, 4, None)
    assert raised.value.field == "parameters"
    assert reason in raised.value.found


def test_other_names_of_classes_are_refused() -> None:
    named = recalib.fit(_LOGITS, np.array(list("abcd"))[_LABELS])
    with pytest.raises(InputError, match="other names of classes"):
        check_parameter_file(named.to_bytes(), 4, ("b", "a", "c", "d"))


def test_refusal_is_a_422_and_no_job_is_queued(ready: Service) -> None:
    """The reader process refuses the file; the field is named."""
    url = "/v1/models/digits/calibrators"
    fitted = recalib.fit(_LOGITS, _LABELS)

    def post(**body: Any) -> Any:
        return ready.client.post(url, json=body)

    def jobs() -> list[Any]:
        # The server itself queues `monitor` at times.
        items = ready.client.get("/v1/jobs").json()["items"]
        return [job for job in items if job["kind"] != "monitor"]

    before = jobs()
    check(post(**upload_json(b"hello")), 422, "parameters", "not a Recalib parameter file")
    check(post(**upload_json(_overflowing())), 422, "parameters", "overflow")
    check(post(parameters="A"), 422, "parameters", "'A'")
    check(post(**upload_json(fitted, map="vector")), 422, "map", "`parameters` too")
    check(post(**upload_json(fitted, options={})), 422, "options", "`parameters` too")
    check(post(), 422, "dataset", "none")
    check(post(dataset="validation", row_digests="AAAA"), 422, "row_digests", "no `parameters`")
    check(post(**upload_json(fitted, row_digests="AAAA")), 422, "row_digests", "3 bytes")
    many = base64.b64encode(np.arange(301, dtype="<u8").tobytes()).decode()
    check(post(**upload_json(fitted, row_digests=many)), 422, "row_digests", "301 rows")
    assert post(**upload_json(fitted, dataset="absent")).status_code == 404
    answer = ready.client.post(url.replace("digits", "absent"), json=upload_json(fitted))
    assert answer.status_code == 404
    large = {"parameters": "A" * 200_000}
    assert post(**large).status_code == 413
    assert jobs() == before


def test_published_version_shows_claims_and_measurements(ready: Service, data) -> None:
    """The champion has seen `validation`, so a comparison needs other rows."""
    logits, labels = draw(600, 4, 2.0, seed=9)
    mine, other = slice(0, 300), slice(300, 600)
    ready.upload(npz(logits[other], labels[other]), name="later")
    fitted = recalib.fit(logits[mine], labels[mine], "vector", measure=True)
    digests = base64.b64encode(_row_digests(fitted, logits[mine])).decode()
    body = upload_json(fitted, dataset="later", row_digests=digests)
    job = ready.client.post("/v1/models/digits/calibrators", json=body).json()
    assert (job["kind"], job["state"]) == ("publish", "queued")
    ready.work()
    result = ready.client.get(f"/v1/jobs/{job['id']}").json()["result"]
    assert result["version"] == 2
    assert result["comparison"]["rows"] == 300
    card = ready.client.get("/v1/models/digits/calibrators/2").json()["card"]
    claimed, measured = card["claimed"]["metrics"]["after"], card["metrics"]["after"]
    assert claimed["nll"]["value"] == pytest.approx(fitted.card.metrics["after"]["nll"].value)
    expected = fitted.evaluate(logits[other], labels[other])
    assert measured["nll"]["value"] == pytest.approx(expected["nll"])
    assert card["selection"]["dataset"] == "later"
    assert sum(card["confidences"]["counts"]) == 300
    entry = ready.client.get("/v1/audit", params={"action": "create_calibrator"}).json()["items"][0]
    assert entry["detail"].startswith("uploaded vector, sha256 ")
    answer = ready.calibrate(data[0][:3], calibrator="2").json()
    np.testing.assert_allclose(answer["probabilities"], fitted.predict(data[0][:3]), atol=1e-6)
