"""Formats of calibrate requests and answers: three each, in any combination."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.errors import InputError, NotAcceptableError
from recalib.files import open_data
from service.http.content_negotiation import negotiate
from service.predict.request_formats import decode_json
from service.predict.top_k import top_classes
from service.serving import json_numbers as numbers
from tests.service.conftest import NPY, Service, npy, npz
from tests.service.test_bad_input import check

pytestmark = pytest.mark.sqlite_only

URL = "/v1/models/digits/calibrate"
JSON, ARROW = "application/json", "application/vnd.apache.arrow.stream"
OFFERED = (JSON, "application/x-npy", ARROW)
LOGITS = np.array([[0.0, 1.5, -2.0, 3.0], [4.0, 0.0, 0.25, -1.0]], np.float32)


def arrow(table: pa.Table, **options: Any) -> bytes:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema, **options) as writer:
        writer.write_table(table)
    return stream.getvalue()


def lists(array: np.ndarray, name: str = "logits") -> pa.Table:
    flat = pa.array(array.reshape(-1))
    return pa.table({name: pa.FixedSizeListArray.from_arrays(flat, array.shape[1])})


def read(answer: Any) -> np.ndarray:
    """Return the probabilities of an answer in any format."""
    assert answer.status_code == 200, answer.text
    kind = answer.headers["content-type"]
    if kind == JSON:
        return np.array(answer.json()["probabilities"], np.float32)
    if kind == "application/x-npy":
        return np.load(io.BytesIO(answer.content))
    assert kind == ARROW
    with open_data(io.BytesIO(answer.content), format="arrow", input="probabilities") as file:
        (chunk,) = file.chunks()
        return chunk.logits


BODIES = {
    JSON: json.dumps({"logits": LOGITS.tolist()}).encode(),
    "application/x-npy": npy(LOGITS),
    ARROW: arrow(lists(LOGITS)),
}


@pytest.mark.parametrize("accept", OFFERED)
@pytest.mark.parametrize("kind", BODIES)
def test_every_request_format_works_with_every_answer_format(
    shared: Service, kind: str, accept: str
) -> None:
    """The float32 numbers are equal in all formats."""
    expected = read(shared.calibrate(LOGITS))
    headers = {"Content-Type": kind, "Accept": accept}
    answer = shared.client.post(URL, content=BODIES[kind], headers=headers)
    assert answer.headers["content-type"] == accept
    probabilities = read(answer)
    assert probabilities.dtype == np.float32
    np.testing.assert_array_equal(probabilities, expected)


@pytest.mark.parametrize("accept", OFFERED)
@pytest.mark.parametrize("rows", [2, 20, 50])
def test_npy_bodies_may_be_in_fortran_order(shared: Service, rows: int, accept: str) -> None:
    """NumPy saves so what a transposition gives; the answer is that of the same rows in C order."""
    logits = np.random.default_rng(0).normal(size=(rows, 4)).astype(np.float32)
    headers = {**NPY, "Accept": accept}
    in_order, transposed = (
        read(shared.client.post(URL, content=npy(body), headers=headers))
        for body in (logits, np.asfortranarray(logits))
    )
    np.testing.assert_array_equal(transposed, in_order)


def test_arrow_answer_names_the_calibrator(ready: Service) -> None:
    answer = ready.client.post(URL, json={"logits": LOGITS.tolist()}, headers={"Accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.schema.field("probabilities").type == pa.list_(pa.float32(), 4)
    expected = {"version": 1, "map": "temperature"}
    assert json.loads(table.schema.metadata[b"calibrator"]) == expected


@pytest.mark.parametrize(
    "table",
    [
        lists(LOGITS.astype(np.float64)),
        pa.table({"logits": pa.array(LOGITS.tolist())}),
        pa.table({f"logit_{k}": LOGITS[:, k] for k in range(4)}),
        lists(LOGITS).append_column("labels", pa.array([1, 0])),
        pa.concat_tables([lists(LOGITS[:1]), lists(LOGITS[1:])]),
    ],
    ids=["float64", "lists", "a column a class", "labels", "two batches"],
)
def test_arrow_columns_of_uploads_are_accepted(shared: Service, table: pa.Table) -> None:
    answer = shared.client.post(URL, content=arrow(table), headers={"Content-Type": ARROW})
    np.testing.assert_array_equal(read(answer), read(shared.calibrate(LOGITS)))


def test_arrow_of_probabilities_is_accepted(ready: Service) -> None:
    p = (np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)).astype(np.float32)
    answer = ready.client.post(
        f"{URL}?input=probabilities",
        content=arrow(lists(p, "probabilities")),
        headers={"Content-Type": ARROW},
    )
    np.testing.assert_allclose(read(answer), read(ready.calibrate(LOGITS)), atol=1e-6)


BAD_ARROW = {
    "not Arrow": (b"hello, this is no Arrow", 415, "body"),
    "nothing": (b"", 422, "body"),
    "cut": (BODIES[ARROW][:-20], 422, "body"),
    "another column": (arrow(lists(LOGITS, "scores")), 422, "logits"),
    "null": (arrow(pa.table({"logits": pa.array([[1.0, None, 2.0, 3.0]])})), 422, "logits[0][1]"),
    "NaN": (arrow(lists(np.full((1, 4), np.nan))), 422, "logits[0][0]"),
    "another K": (arrow(lists(LOGITS[:, :3].copy())), 422, "logits"),
    "no rows": (arrow(lists(LOGITS).slice(0, 0)), 422, "logits"),
    "too many rows": (arrow(lists(np.zeros((51, 4), np.float32))), 413, "logits"),
    # 100,000 numbers in a few hundred bytes; the body limit is 100,000 bytes.
    "a bomb": (
        arrow(
            lists(np.zeros((100_000, 4), np.float32)),
            options=pa.ipc.IpcWriteOptions(compression="zstd"),
        ),
        413,
        "body",
    ),
}


@pytest.mark.parametrize("case", BAD_ARROW)
def test_bad_arrow_is_rejected(shared: Service, case: str) -> None:
    body, status, field = BAD_ARROW[case]
    check(shared.client.post(URL, content=body, headers={"Content-Type": ARROW}), status, field)


ACCEPTED = [
    ("", JSON),
    ("*/*", JSON),
    ("application/*", JSON),
    ("application/x-npy", "application/x-npy"),
    ("Application/X-NPY ; q=1.0", "application/x-npy"),
    ("application/json;q=0.5, application/x-npy", "application/x-npy"),
    ("application/json;q=0.5, application/x-npy;q=0.4", JSON),
    ("application/x-npy, */*;q=0.1", "application/x-npy"),
    ("*/*, application/json;q=0", "application/x-npy"),
    ("application/*;q=0.2, application/json;q=0.1", "application/x-npy"),
    ("text/html, application/xhtml+xml, */*;q=0.8", JSON),
    ("application/json;charset=utf-8", JSON),
    (ARROW, ARROW),
    (" , application/x-npy,", "application/x-npy"),
]


@pytest.mark.parametrize(("accept", "expected"), ACCEPTED)
def test_accept_header_selects_the_format(accept: str, expected: str) -> None:
    """By quality, then by the server's order; the more specific range sets the quality."""
    assert negotiate(accept, OFFERED) == expected


@pytest.mark.parametrize(
    "accept", ["text/html", "image/*", "*/*;q=0", "application/json;q=0.0", "application/json;q=x"]
)
def test_unacceptable_formats_are_rejected(accept: str) -> None:
    with pytest.raises(NotAcceptableError) as excinfo:
        negotiate(accept, OFFERED)
    assert excinfo.value.accepted == ", ".join(OFFERED)


@given(st.text(max_size=60))
def test_arbitrary_accept_headers_are_not_server_errors(text: str) -> None:
    """The answer has an offered format, or the request is rejected."""
    with contextlib.suppress(NotAcceptableError):
        assert negotiate(text, OFFERED) in OFFERED


def test_two_accept_headers_are_one_list(ready: Service) -> None:
    accept_headers = [
        ("Accept", "application/json;q=0.1"),
        ("Accept", "application/x-npy"),
        ("Content-Type", JSON),
    ]
    for headers in (accept_headers, [accept_headers[1], accept_headers[0], accept_headers[2]]):
        answer = ready.client.post(URL, content=BODIES[JSON], headers=headers)
        assert answer.headers["content-type"] == "application/x-npy"


def test_top_k_returns_the_most_likely_classes(service: Service, data: Any) -> None:
    """Indices, labels and probabilities of the most likely classes, in that order."""
    names = ["cat", "dog", "owl", "yak"]
    service.model(classes=names)
    service.upload(npz(*data))
    service.fitted()
    probabilities = read(service.calibrate(LOGITS))
    document = service.calibrate(LOGITS, top_k=3).json()
    assert document["calibrator"] == {"version": 1, "map": "temperature"}
    top_k = document["top_k"]
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :3]
    assert top_k["classes"] == order.tolist()
    assert top_k["labels"] == [[names[k] for k in row] for row in order]
    expected = np.take_along_axis(probabilities, order, axis=1)
    np.testing.assert_array_equal(np.array(top_k["probabilities"], np.float32), expected)
    assert "probabilities" not in document

    answer = service.client.post(
        f"{URL}?top_k=3", json={"logits": LOGITS.tolist()}, headers={"Accept": ARROW}
    )
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["classes"].to_pylist() == order.tolist()
    np.testing.assert_array_equal(
        np.array(table["probabilities"].to_pylist(), np.float32), expected
    )


def test_top_k_works_without_class_labels(ready: Service) -> None:
    assert set(ready.calibrate(LOGITS, top_k=4).json()["top_k"]) == {"classes", "probabilities"}


@pytest.mark.parametrize("k", ["0", "-1", "5", "x", "1.0", "²", "9" * 30])
def test_top_k_outside_its_range_is_rejected(shared: Service, k: str) -> None:
    check(shared.calibrate(LOGITS, top_k=k), 422, "top_k", k[:20])


def test_top_k_does_not_fit_into_npy(ready: Service) -> None:
    """One array cannot hold classes and probabilities; JSON is used if it is acceptable."""
    only = {**NPY, "Accept": "application/x-npy"}
    refused = ready.client.post(f"{URL}?top_k=2", content=npy(LOGITS), headers=only)
    check(refused, 406, "Accept", "application/x-npy")
    either = {**NPY, "Accept": "application/x-npy, application/json;q=0.1"}
    answer = ready.client.post(f"{URL}?top_k=2", content=npy(LOGITS), headers=either)
    assert len(answer.json()["top_k"]["classes"][0]) == 2


@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.integers(1, 40), st.booleans())
def test_top_classes_is_a_stable_sort(seed: int, classes: int, k: int, ties: bool) -> None:
    """Agrees with NumPy's stable sort, with many ties."""
    rng = np.random.default_rng(seed)
    p = rng.random((7, classes)).astype(np.float32)
    if ties:
        p = np.round(p * 3) / np.float32(3)
    k = min(k, classes)
    order = np.argsort(-p, axis=1, kind="stable")[:, :k]
    numbers_of, values = top_classes(p, k)
    np.testing.assert_array_equal(numbers_of, order)
    np.testing.assert_array_equal(values, np.take_along_axis(p, order, axis=1))


def test_top_classes_over_several_blocks() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(1000), 300).astype(np.float32)
    p[:, 500:] = p[:, :500]  # each value twice
    numbers_of, values = top_classes(p, 5)
    order = np.argsort(-p, axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(numbers_of, order)
    np.testing.assert_array_equal(values, np.take_along_axis(p, order, axis=1))


def test_zeros_of_either_sign_are_equal() -> None:
    numbers_of, values = top_classes(np.array([[-0.0, 1.0, 0.0]], np.float32), 3)
    assert numbers_of.tolist() == [[1, 0, 2]]
    assert not np.signbit(values).any()


# JSON values that contain numbers; most are not plain rows.
_leaf = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**70), 2**70),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
)
_rows = st.one_of(
    st.integers(1, 4).flatmap(
        lambda k: st.lists(
            st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=k, max_size=k), max_size=4
        )
    ),
    st.recursive(_leaf, lambda inner: st.lists(inner, max_size=3), max_leaves=8),
)


@given(_rows, st.sampled_from(["logits", "probabilities", "x", "logits["]), st.booleans())
def test_both_json_parsers_agree(rows: Any, name: str, twice: bool) -> None:
    """The fast parser returns the array of the general one, or declines."""
    text = json.dumps({name: rows})
    if twice:
        text = text[:-1] + ', "logits": [[1, 2]]}'
    body = text.encode()
    quick = numbers.rows_under("logits", body)
    try:
        careful = np.asarray(decode_json(body, "logits"), np.float32)
    except InputError:
        assert quick is None
        return
    if quick is not None:
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(quick.astype(np.float32), careful)


@pytest.mark.parametrize("text", ["[1,2]x", "﻿[1,2]", "[1,[2]]", "[1,null]", "[1,1e999]", "[", "3"])
def test_fast_parser_declines_other_json(text: str) -> None:
    assert numbers.flat_in(text.encode()) is None


@pytest.mark.parametrize("rows", ["[[1, [2]], [3, 4]]", "[[1, 2], [3]]", "[[], []]", "[1, 2]"])
def test_fast_parser_declines_uneven_and_nested_rows(rows: str) -> None:
    assert numbers.rows_under("logits", b'{"logits": %s}' % rows.encode()) is None


def test_long_bodies_have_the_errors_of_short_ones(ready: Service) -> None:
    """A body longer than `LONG` has another parser; errors and masks are the same."""
    rows: list[list[Any]] = [[0.125, 1.0, 2.0, 3.0]] * 45
    plain = ready.calibrate(rows, ids=0).json()
    for bad, field in ((["x", 1, 2, 3], "logits[44][0]"), ([1, 2], "logits[44]")):
        text = json.dumps({"logits": [*rows[:-1], bad]}).ljust(numbers.LONG)
        answer = ready.client.post(URL, content=text, headers={"Content-Type": JSON})
        check(answer, 422, field)
    text = json.dumps({"logits": rows}).ljust(numbers.LONG)
    long = ready.client.post(f"{URL}?ids=0", content=text, headers={"Content-Type": JSON})
    assert long.json() == plain
    masked = json.dumps({"logits": [[None, 1, 2, 3]]}).ljust(numbers.LONG)
    answer = ready.client.post(URL, content=masked, headers={"Content-Type": JSON})
    assert answer.json()["probabilities"][0][0] == 0
    huge = json.dumps({"logits": [[1e39, 1, 2, 3]]}).ljust(numbers.LONG)
    check(ready.client.post(URL, content=huge, headers={"Content-Type": JSON}), 422, "logits[0][0]")


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_one_column_is_that_of_class_1_of_2(ready: Service, shape: tuple[int, ...]) -> None:
    """In uploads and in requests of every format."""
    rng = np.random.default_rng(0)
    odds = rng.normal(size=40).astype(np.float32)
    labels = (rng.random(40) < 0.5).astype(np.int64)
    ready.model("binary", 2)
    assert ready.upload(npz(odds.reshape(shape), labels), model="binary").status_code == 201
    assert ready.fitted(model="binary", promote=True)["state"] == "succeeded"
    two = np.stack([np.zeros_like(odds), odds], axis=1)
    expected = read(ready.calibrate(two, "binary"))
    column = odds.reshape(shape)
    np.testing.assert_array_equal(read(ready.calibrate(column, "binary")), expected)
    url = URL.replace("digits", "binary")
    for kind, body in ((NPY, npy(column)), (ARROW, arrow(pa.table({"logit": odds})))):
        headers = kind if isinstance(kind, dict) else {"Content-Type": kind}
        answer = ready.client.post(url, content=body, headers=headers)
        np.testing.assert_array_equal(read(answer), expected)
    check(ready.calibrate([0.5, [1.0]], "binary"), 422, "logits[1]", "a row")
    check(ready.calibrate(LOGITS[:, 0]), 422, "logits", "1 class")
