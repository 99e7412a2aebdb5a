"""Bad input over REST: the status and the field, found and accepted of the problem."""

from __future__ import annotations

import gzip
import io
import pickle
import time
import zipfile
from typing import Any

import numpy as np
import pytest

from service.serving.negative_cache import TTL_SECONDS
from tests.service.conftest import NPY, NPZ, Service, npy, npz

pytestmark = pytest.mark.sqlite_only

ROW = [0.0, 1.0, 2.0, 3.0]


def check(answer: Any, status: int, field: str, found: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    violation = body["errors"][0]
    assert violation["field"] == field, body
    assert found in violation["found"], body
    assert violation["accepted"]


CALIBRATE_JSON = [
    ("NaN", b'{"logits": [[NaN, 1, 2, 3]]}', "body", "malformed"),
    ("Infinity", b'{"logits": [[Infinity, 1, 2, 3]]}', "body", "malformed"),
    ("overflow", b'{"logits": [[1e39, 1, 2, 3]]}', "logits[0][0]", "+inf"),
    ("text", b'{"logits": [["1", 1, 2, 3]]}', "logits[0][0]", "str"),
    ("boolean", b'{"logits": [[true, 1, 2, 3]]}', "logits[0][0]", "bool"),
    ("ragged", b'{"logits": [[0, 1, 2, 3], [1, 2]]}', "logits[1]", "2 values"),
    ("empty", b'{"logits": []}', "logits", "no rows"),
    ("empty row", b'{"logits": [[]]}', "logits", "0 class"),
    ("rank 1", b'{"logits": [1, 2, 3, 4]}', "logits", "1 class"),
    ("rows and numbers", b'{"logits": [[1, 2, 3, 4], 5]}', "logits[1]", "a number"),
    ("rank 3", b'{"logits": [[[1, 2, 3, 4]]]}', "logits[0][0]", "array"),
    ("another K", b'{"logits": [[1, 2, 3]]}', "logits", "3 classes"),
    ("all masked", b'{"logits": [[null, null, null, null]]}', "logits[0]", "masked"),
    ("no field", b"{}", "logits", "nothing"),
    ("another field", b'{"logitz": [[1, 2, 3, 4]]}', "body", "logitz"),
    ("not JSON", b"hello", "body", "malformed"),
    ("nothing", b"", "body", "truncated"),
    ("truncated", b'{"logits": [[1, 2', "body", "truncated"),
    ("deep", b'{"logits": ' + b"[" * 50_000, "logits[0][0]", "array"),
    ("not text", b'{"\xff": 1}', "body", ""),
]


@pytest.mark.parametrize(
    ("body", "field", "found"), [c[1:] for c in CALIBRATE_JSON], ids=[c[0] for c in CALIBRATE_JSON]
)
def test_bad_calibrate_json_is_rejected(
    shared: Service, body: bytes, field: str, found: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = shared.client.post("/v1/models/digits/calibrate", content=body, headers=headers)
    check(answer, 422, field, found)


def lying_header() -> bytes:
    """Return a header that claims 10¹² rows, followed by a few bytes."""
    body = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**12, 4)}
    np.lib.format.write_array_header_1_0(body, header)
    return body.getvalue() + b"\0" * 64


CALIBRATE_NPY = [
    ("NaN", npy(np.array([[np.nan, 1, 2, 3]])), "logits[0][0]", "NaN"),
    ("+inf", npy(np.array([[np.inf, 1, 2, 3]])), "logits[0][0]", "+inf"),
    ("objects", npy(np.array([[None, 1, 2, 3]], dtype=object)), "logits", "dtype object"),
    ("text", npy(np.array([["a", "b", "c", "d"]])), "logits", "dtype <U1"),
    ("rank 1", npy(np.zeros(4)), "logits", "shape (4,)"),
    ("another K", npy(np.zeros((2, 3))), "logits", "3 classes"),
    ("no rows", npy(np.zeros((0, 4))), "logits", "no rows"),
    ("lying", lying_header(), "body", "64 bytes"),
    ("truncated", npy(np.zeros((2, 4)))[:-3], "body", "61 bytes"),
    ("pickle", pickle.dumps([1, 2]), "body", ""),
    ("nothing", b"", "body", ""),
]


@pytest.mark.parametrize(
    ("body", "field", "found"), [c[1:] for c in CALIBRATE_NPY], ids=[c[0] for c in CALIBRATE_NPY]
)
def test_bad_calibrate_npy_is_rejected(
    shared: Service, body: bytes, field: str, found: str
) -> None:
    answer = shared.client.post("/v1/models/digits/calibrate", content=body, headers=NPY)
    check(answer, 422, field, found)


def test_other_bad_calibrate_requests_are_rejected(ready: Service) -> None:
    url = "/v1/models/digits/calibrate"
    post = ready.client.post
    check(post(url, json={"logits": [ROW]}, params={"input": "guess"}), 422, "input", "guess")
    check(post(url, content=b"x", headers={"Content-Type": "text/plain"}), 415, "Content-Type")
    check(post(url, json={"logits": [ROW] * 51}), 413, "logits", "51 rows")
    check(
        post(url, json={"probabilities": [ROW]}, params={"input": "probabilities"}),
        422,
        "probabilities[0][2]",
        "2",
    )


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("topk=2", 422, "query: found 'topk'"),
        ("calibrator=1&version=2", 422, "query: found 'version'"),
        ("calibrator=1&calibrator=2", 422, "query: found 'calibrator (again)'"),
        ("calibrator=01", 404, "alias '01' does not exist"),
        ("top_k=", 422, "top_k: found ''"),
        ("ids=", 422, "ids: found ''"),
        ("input=", 422, "input: found ''"),
        ("calibrator=", 404, "alias '' does not exist"),
    ],
)
def test_unknown_and_empty_parameters_are_rejected(
    shared: Service, query: str, status: int, says: str
) -> None:
    """A misspelt parameter, or an empty one, as from an empty variable in a script."""
    url = f"/v1/models/digits/calibrate?{query}"
    answer = shared.client.post(url, json={"logits": [[1, 2, 3, 4]]})
    assert (answer.status_code, answer.json()["detail"][: len(says)]) == (status, says)


def test_compressed_calibrate_body_is_rejected(shared: Service) -> None:
    """The error names the encoding; the body is not reported as malformed JSON."""
    url, body = "/v1/models/digits/calibrate", b'{"logits": [[1, 2, 3, 4]]}'
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    refused = shared.client.post(url, content=gzip.compress(body), headers=headers)
    check(refused, 415, "Content-Encoding", "gzip")
    as_it_is = {**headers, "Content-Encoding": "identity"}
    assert shared.client.post(url, content=body, headers=as_it_is).status_code == 200


def test_calibrate_with_unknown_names_is_not_found(ready: Service) -> None:
    def detail(status: int, answer: Any) -> str:
        assert answer.status_code == status, answer.text
        return str(answer.json()["detail"])

    assert "model 'nope'" in detail(404, ready.calibrate([ROW], model="nope"))
    assert "alias 'nope'" in detail(404, ready.calibrate([ROW], calibrator="nope"))
    assert "'99'" in detail(404, ready.calibrate([ROW], calibrator="99"))
    assert "'0'" in detail(404, ready.calibrate([ROW], calibrator="0"))
    assert detail(404, ready.calibrate([ROW], calibrator="9" * 40))


def test_missing_champion_error_names_the_next_step(service: Service) -> None:
    service.model(serve_uncalibrated=False)
    answer = service.calibrate([ROW])
    assert answer.status_code == 409
    assert "fit a calibrator (POST /v1/models/digits/calibrators)" in answer.json()["detail"]
    assert service.upload(npz(GOOD, Y)).status_code == 201
    reason = service.fitted(map="identity", promote="if_better")["result"]["reason"]
    time.sleep(TTL_SECONDS)
    detail = service.calibrate([ROW]).json()["detail"]
    assert f"version 1 was not promoted ({reason}). Promote it (PUT " in detail
    assert "?calibrator=1" in detail
    champion = "/v1/models/digits/aliases/champion"
    assert service.client.put(champion, json={"version": 1}).is_success
    assert service.calibrate([ROW]).is_success


GOOD = np.tile(ROW, (6, 1))
Y = np.arange(6) % 4


def with_value(row: int, column: int, value: float) -> np.ndarray:
    changed = GOOD.copy()
    changed[row, column] = value
    return changed


UPLOADS = [
    ("NaN", npz(with_value(2, 1, np.nan), Y), "logits[2][1]", "NaN"),
    ("+inf", npz(with_value(2, 1, np.inf), Y), "logits[2][1]", "+inf"),
    ("label on a masked class", npz(with_value(1, 1, -np.inf), Y), "labels[1]", "masked"),
    ("label out of range", npz(GOOD, np.where(Y == 3, 4, Y)), "labels[3]", "4"),
    ("label -1", npz(GOOD, Y - 1), "labels[0]", "-1"),
    ("fractional", npz(GOOD, Y + 0.5), "labels[0]", "0.5"),
    ("rank", npz(GOOD[None], Y), "logits", "shape (1, "),
    ("another K", npz(GOOD[:, :3], np.zeros(6, int)), "logits", "3 classes"),
    ("no rows", npz(GOOD[:0], Y[:0]), "logits", "no rows"),
    ("lengths", npz(GOOD, Y[:5]), "labels", "5"),
    ("objects", npz(GOOD.astype(object), Y), "logits", "object"),
]


@pytest.mark.parametrize(
    ("body", "field", "found"), [u[1:] for u in UPLOADS], ids=[u[0] for u in UPLOADS]
)
def test_bad_uploads_are_rejected(
    service: Service, body: bytes, field: str, found: str, registry, tmp_path
) -> None:
    service.model()
    check(service.upload(body), 422, field, found)
    assert service.client.get("/v1/models/digits/datasets").json()["items"] == []
    # No blob and no temporary file is left.
    assert [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()] == []


def test_empty_upload_is_rejected(service: Service) -> None:
    service.model()
    for body in (b"hello", b"", pickle.dumps({"logits": [1]}), npz(GOOD, Y)[:-30]):
        answer = service.upload(body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["accepted"]


def test_upload_without_labels_is_rejected(service: Service) -> None:
    service.model()
    file = io.BytesIO()
    np.savez(file, logits=GOOD)
    assert service.upload(file.getvalue()).json()["errors"][0]["field"] == "labels"
    answer = service.client.put("/v1/models/digits/datasets/v", content=npy(GOOD), headers=NPY)
    assert answer.json()["errors"][0]["field"] == "labels"


def test_zip_bomb_is_rejected_in_constant_memory(service: Service) -> None:
    """A member of 100 MB of zeros in 100 KB: its header claims less than it holds."""
    service.model()
    file = io.BytesIO()
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (6, 4)}
    )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", header.getvalue() + b"\0" * 100_000_000)
        labels = io.BytesIO()
        np.save(labels, Y)
        archive.writestr("labels.npy", labels.getvalue())
    answer = service.upload(file.getvalue())
    assert answer.status_code in (413, 422), answer.text


def test_other_bad_upload_requests_are_rejected(service: Service) -> None:
    service.model()
    body = npz(GOOD, Y)
    put = service.client.put
    answer = put("/v1/models/digits/datasets/v", content=body, headers={"Content-Type": "x/y"})
    check(answer, 415, "Content-Type", "x/y")
    check(put("/v1/models/digits/datasets/a b", content=body, headers=NPZ), 422, "dataset", "a b")
    assert put("/v1/models/nope/datasets/v", content=body, headers=NPZ).status_code == 404


def test_bodies_over_the_limit_are_rejected(service: Service) -> None:
    """With and without a Content-Length, before the body is in memory."""
    service.model()
    large = {"name": "x", "classes": ["y" * 100_000, "z"]}
    check(service.client.post("/v1/models", json=large), 413, "body", "bytes")
    chunks = (b" " * 10_000 for _ in range(20))
    headers = {"Content-Type": "application/json"}
    check(service.client.post("/v1/models", content=chunks, headers=headers), 413, "body")
    check(service.upload(b" " * 1_000_001), 413, "body", "1000001 bytes")
    exact = b'{"name": "x", "classes": 4}'.ljust(100_000)
    assert service.client.post("/v1/models", content=exact, headers=headers).status_code == 201


def test_calibrate_body_over_the_limit_is_rejected(ready: Service) -> None:
    chunks = (b" " * 10_000 for _ in range(20))
    headers = {"Content-Type": "application/json"}
    url = "/v1/models/digits/calibrate"
    check(ready.client.post(url, content=chunks, headers=headers), 413, "body")


def test_bad_models_are_rejected(service: Service) -> None:
    post = service.client.post
    service.model()
    again = post("/v1/models", json={"name": "digits", "classes": 4})
    assert again.status_code == 409
    assert "digits" in again.json()["detail"]
    for name in ("", "a/b", "../x", "a b", "x" * 129, "é", "a\n"):
        assert post("/v1/models", json={"name": name, "classes": 4}).status_code == 422, name
    for classes in (1, 0, -1, 2.5, "4", None, [], ["a"], [1, 2], True):
        answer = post("/v1/models", json={"name": "m", "classes": classes})
        assert answer.status_code == 422, classes
        assert "classes" in answer.json()["errors"][0]["field"]
    check(post("/v1/models", json={"name": "m", "classes": ["a", "a"]}), 422, "classes", "'a'")
    check(post("/v1/models", json={"name": "m", "classes": 2, "x": 1}), 422, "x")
    check(post("/v1/models", json={"name": "m"}), 422, "classes", "nothing")
    answer = post("/v1/models", content=b"{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert service.client.get("/v1/models/nope").status_code == 404


def test_bad_fit_requests_are_rejected(ready: Service) -> None:
    check(ready.ask_fit(map="magic"), 422, "map", "magic")
    check(ready.ask_fit(objective="luck"), 422, "objective", "luck")
    check(ready.ask_fit(options={"bins": 3}), 422, "options.bins", "unknown")
    check(ready.ask_fit(promote="perhaps"), 422, "promote", "perhaps")
    assert ready.ask_fit(dataset="nope").status_code == 404
    assert ready.ask_fit(model="nope").status_code == 404
    # None of them left a job.
    jobs = ready.client.get("/v1/jobs").json()["items"]
    assert [job["kind"] for job in jobs if job["kind"] != "monitor"] == ["fit"]


def test_bad_aliases_are_rejected(ready: Service) -> None:
    put = ready.client.put
    assert put("/v1/models/digits/aliases/champion", json={"version": 9}).status_code == 404
    assert put("/v1/models/nope/aliases/champion", json={"version": 1}).status_code == 404
    check(put("/v1/models/digits/aliases/7", json={"version": 1}), 422, "alias", "7")
    check(put("/v1/models/digits/aliases/x", json={"version": "1"}), 422, "version", "1")
    assert ready.client.get("/v1/models/digits/calibrators/9").status_code == 404


def test_other_invalid_names_are_rejected(service: Service) -> None:
    get = service.client.get
    assert get("/v1/jobs/nope").status_code == 404
    check(get("/v1/models", params={"cursor": "%%%"}), 422, "cursor")
    check(get("/v1/models", params={"limit": 0}), 422, "query.limit", "0")
    for answer in (get("/nope"), service.client.patch("/v1/models")):
        assert answer.headers["content-type"] == "application/problem+json"


NUL = "YQBi"  # "a\0b" in base64

STRANGE = [
    ("GET", "/v1/models/%00", None, 404),
    ("GET", "/v1/models/%ed%a0%80", None, 404),
    ("GET", "/v1/models/digits/datasets/%00", None, 404),
    ("PUT", "/v1/models/digits/datasets/%00", None, 415),
    ("GET", "/v1/jobs/%00", None, 404),
    ("DELETE", "/v1/jobs/%00", None, 404),
    ("GET", "/v1/jobs?model=%00", None, 404),
    ("GET", "/v1/models/digits/aliases/%00/history", None, 200),
    ("GET", f"/v1/models?cursor={NUL}", None, 422),
    ("GET", f"/v1/jobs?cursor={NUL}", None, 422),
    ("GET", f"/v1/models/digits/datasets?cursor={NUL}", None, 422),
    ("GET", f"/v1/models/digits/calibrators?cursor={NUL}", None, 422),
    ("POST", "/v1/models/%00/calibrate", b'{"logits": [[0, 1, 2, 3]]}', 404),
    ("POST", "/v1/models/digits/calibrate?calibrator=%00", b'{"logits": [[0, 1, 2, 3]]}', 404),
    # Python calls both digits: int() rejects ² and reads ٣ as 3.
    ("POST", "/v1/models/digits/calibrate?calibrator=%C2%B2", b'{"logits": [[0, 1]]}', 404),
    ("POST", "/v1/models/digits/calibrate?calibrator=%D9%A3", b'{"logits": [[0, 1]]}', 404),
    ("POST", "/v1/models", rb'{"name": "m", "classes": ["a\u0000", "b"]}', 422),
    ("POST", "/v1/models", rb'{"name": "m", "classes": ["a\ud800", "b"]}', 422),
    ("PUT", "/v1/models/digits/aliases/x", rb'{"version": 1, "reason": "\u0000"}', 422),
    ("PUT", "/v1/models/digits/aliases/x", rb'{"version": 1, "reason": "\ud800"}', 422),
    ("PUT", "/v1/models/digits/aliases/x", b'{"version": 2147483648}', 422),
    ("PUT", "/v1/models/digits/aliases/x", b'{"version": %d}' % 2**70, 422),
    ("POST", "/v1/models/digits/calibrators", rb'{"dataset": "\u0000"}', 422),
    ("POST", "/v1/models/digits/calibrators", rb'{"dataset": "\ud800"}', 422),
    (
        "POST",
        "/v1/models/digits/calibrators",
        rb'{"dataset": "validation", "options": {"\ud800": "\u0000"}}',
        422,
    ),
]


@pytest.mark.both_databases
def test_text_that_databases_cannot_store_is_rejected(ready: Service) -> None:
    """NUL, lone surrogates, digits of other scripts, numbers beyond an integer column.

    SQLite accepts some of them and PostgreSQL none; all are client errors on both.
    """
    for verb, path, body, status in STRANGE:
        headers = {"Content-Type": "application/json", "Idempotency-Key": "k"} if body else {}
        answer = ready.client.request(verb, path, content=body, headers=headers)
        assert answer.status_code == status, (verb, path, body, answer.text)


BODIES = [
    (b"{", "malformed JSON at character 1"),
    (b"\xff\xfe", "malformed JSON"),
    (b"[" * 50_000, "nested too deeply"),
    (b'{"name": "m", "classes": 1' + b"0" * 5000 + b"}", "too long a number"),
    (b"[]", "[]"),
    (b"", "nothing"),
]


@pytest.mark.parametrize(("body", "found"), BODIES, ids=[found for _, found in BODIES])
def test_bodies_of_the_wrong_json_type_are_rejected(
    shared: Service, body: bytes, found: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = shared.client.post("/v1/models", content=body, headers=headers)
    check(answer, 422, "body", found)


def test_json_needs_its_content_type(service: Service) -> None:
    """`curl -d` without a header sends a form type; the error names the type to send."""
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        answer = service.client.post(
            "/v1/models", content=b'{"name": "m", "classes": 4}', headers={"Content-Type": kind}
        )
        check(answer, 415, "Content-Type", kind)
        assert answer.json()["errors"][0]["accepted"] == "application/json"


def test_violations_name_the_path_in_the_request(ready: Service) -> None:
    """Fields are paths into the body; internal names of pydantic do not occur."""
    post = ready.client.post
    labels = post("/v1/models", json={"name": "m", "classes": ["a", 1, "c"]}).json()["errors"]
    assert [violation["field"] for violation in labels] == ["classes", "classes.1"]
    fit = post("/v1/models/digits/calibrators", json={"dataset": "d", "promote": "perhaps"})
    assert {violation["field"] for violation in fit.json()["errors"]} == {"promote"}


def test_errors_of_fields_and_paths_say_what_is_accepted(shared: Service) -> None:
    answer = shared.client.post("/v1/models", json={"name": "owl", "clases": 3})
    by_field = {violation["field"]: violation for violation in answer.json()["errors"]}
    assert by_field["classes"]["found"] == "nothing"
    assert by_field["classes"]["accepted"] == "a value: the field is required"
    assert by_field["clases"]["found"] == "an unknown field"
    answer = shared.client.post("/v1/models", json={"name": "owl", "classes": 1})
    assert answer.json()["errors"][0]["accepted"] == "greater than or equal to 2"
    answer = shared.client.post("/v1/model")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "no route for POST /v1/model; /docs lists the routes"
