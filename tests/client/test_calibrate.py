"""Rows of every kind and number, through a server with small limits."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
import scipy.special
from numpy.typing import NDArray

import recalib
from recalib.calibrator import Calibrator
from recalib.client import (
    Client,
    InvalidRequestError,
    ResourceConflictError,
    ResourceNotFoundError,
    calibration,
)
from recalib.core.group_numbers import group_number
from recalib.errors import ConflictError, InputError, RecalibWarning
from recalib.registry import Registry
from recalib.sets import SetOptions
from recalib.shift import ShadowState, adapt
from tests.client.conftest import MAX_BYTES, MAX_ROWS
from tests.client.either import Either, asyncio_is_slow
from tests.end_to_end.programs import Programs, Server, until
from tests.fitting.conftest import draw

LOGITS, LABELS = draw(600, 4, 3.0)


@pytest.fixture(scope="module")
def model(server: Server) -> str:
    """A model whose versions are temperature and vector scaling; the first serves."""
    with Client(server.url) as client:
        client.create_model("calibrated", 4)
        client.upload_dataset("calibrated", "val", LOGITS, LABELS, progress=False)
        for map in ("temperature", "vector"):
            client.wait(client.fit("calibrated", "val", map=map, promote=False), progress=False)
        sets = {"sets": "raps", "coverage": 0.8, "sets_by": "class", "promote": False}
        sets |= {"sets_folds": 3, "sets_penalty": 0.2, "sets_k_reg": 1}
        client.wait(client.fit("calibrated", "val", **sets), progress=False)
        client.wait(client.fit("calibrated", "val", max_risk=0.4, promote=False), progress=False)
        client.promote("calibrated", 1)
    return "calibrated"


@pytest.fixture(scope="module")
def local() -> Calibrator:
    """The library's result for the server's first version."""
    return recalib.fit(LOGITS, LABELS, map="temperature")


def test_sets_are_those_of_the_library(client: Either, model: str) -> None:
    """Also of an input that is sent in parts; a version without thresholds has none."""
    options = SetOptions(method="raps", coverage=0.8, by="class", penalty=0.2, k_reg=1)
    rows = np.tile(LOGITS, (1 + MAX_ROWS // len(LOGITS), 1)).astype(np.float32)
    answer = client.predict(model, rows, calibrator=3, ids=0, sets=True)
    expected = recalib.fit(LOGITS, LABELS, sets=options, sets_folds=3).predict_set(rows)
    np.testing.assert_array_equal(answer.sets, expected)
    assert client.predict(model, rows[:2], calibrator=3).sets is None
    message = r"version 1 of model .*, without thresholds.*; accepted: a version .* with sets: 3$"
    for few in (rows[:2], rows):
        with pytest.raises(InvalidRequestError, match=message):
            client.predict(model, few, sets=True)


def test_accepted_rows_are_those_of_the_library(client: Either, model: str) -> None:
    rows = LOGITS.astype(np.float32)
    answer = client.predict(model, rows, calibrator=4, ids=0, accepted=True)
    expected = recalib.fit(LOGITS, LABELS, max_risk=0.4).is_accepted(rows)
    np.testing.assert_array_equal(answer.accepted, expected)
    assert 0 < expected.mean() < 1
    assert client.predict(model, rows[:2], calibrator=4).accepted is None
    with pytest.raises(InvalidRequestError, match="without a threshold of rejection"):
        client.predict(model, rows[:2], accepted=True)


@pytest.mark.slow
def test_answers_adapted_to_label_shift_name_their_states(
    client: Either, name: str, shared_programs: Programs
) -> None:
    """Of an input in parts, each row has one; the server has seen the state of the registry."""
    client.create_model(name, 4, monitoring={"capture": 0.5, "adaptation": "label_shift"})
    client.upload_dataset(name, "val", LOGITS, LABELS, progress=False)
    client.wait(client.fit(name, "val", promote=True), progress=False)
    rows = np.tile(LOGITS, (1 + MAX_ROWS // len(LOGITS), 1)).astype(np.float32)
    before = client.predict(name, rows)
    assert set(before.adaptations) == {0}
    home = shared_programs.home
    registry = Registry(f"sqlite:///{home / 'recalib.db'}", str(home / "blobs"))
    weights = np.array([0.5, 1.0, 1.0, 2.0])
    state = ShadowState(1, 1e9, tuple(weights.tolist()), (0.25,) * 4, 2_000, 0.1, applied=0.5)
    with registry.transaction() as tx:
        tx.adaptations.add(tx.models.get(name), 1, [msgspec.to_builtins(state)])
    registry.close()
    until(lambda: client.predict(name, rows[:1]).adaptations[0] == 1, "the state to be served")
    after = client.predict(name, rows)
    assert after.adaptations.tolist() == [1] * len(rows)
    expected = adapt(before.probabilities.astype(float), weights, 0.5)
    np.testing.assert_allclose(after.probabilities, expected, atol=1e-6)


def test_intervals_are_those_of_the_library(client: Either, model: str) -> None:
    fit = client.fit("calibrated", "val", map="venn_abers", promote=False)
    version = (client.wait(fit, progress=False).result or {})["version"]
    answer = client.predict(model, LOGITS, calibrator=version, ids=0, intervals=True)
    expected = recalib.fit(LOGITS, LABELS, "venn_abers").predict_interval(LOGITS)
    np.testing.assert_allclose(answer.intervals, expected, atol=1e-6)
    with pytest.raises(InvalidRequestError, match="of the map temperature"):
        client.predict(model, LOGITS[:2], intervals=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_every_dtype_is_accepted(client: Either, model: str, local: Calibrator, dtype: str) -> None:
    rows = LOGITS[:20].astype(dtype)
    result = client.calibrate(model, rows)
    assert (result.dtype, result.shape) == (np.float32, rows.shape)
    np.testing.assert_allclose(result, local.predict(rows.astype(np.float64)), atol=2e-6)


def test_array_layout_does_not_change_the_result(client: Either, model: str) -> None:
    """Views, columns first and plain lists are the same rows."""
    rows = LOGITS[:20].astype(np.float32)
    expected = client.calibrate(model, rows)
    for same in (np.asfortranarray(rows), np.repeat(rows, 2, axis=0)[::2], rows.tolist()):
        np.testing.assert_array_equal(client.calibrate(model, same), expected)


def test_masked_classes_have_zero_probability(client: Either, model: str) -> None:
    """−inf, and None in lists, has probability 0, and the others sum to 1."""
    rows = LOGITS[:2].astype(np.float32)
    rows[0, 1] = rows[1, 3] = -np.inf
    result = client.calibrate(model, rows)
    assert result[0, 1] == result[1, 3] == 0
    np.testing.assert_allclose(result.sum(axis=1), 1, atol=1e-6)
    listed = [[None if value == -np.inf else value for value in row] for row in rows.tolist()]
    np.testing.assert_array_equal(client.calibrate(model, listed), result)


def test_probabilities_are_accepted(client: Either, model: str) -> None:
    scores = np.exp(LOGITS[:30])
    probabilities = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        client.calibrate(model, probabilities, input="probabilities"),
        client.calibrate(model, LOGITS[:30]),
        atol=1e-6,
    )
    with pytest.raises(InputError, match="are these logits"):
        client.calibrate(model, LOGITS, input="probabilities")
    with pytest.raises(InputError, match="input: found 'scores'"):
        client.calibrate(model, LOGITS, input="scores")


def test_large_inputs_are_split_by_rows(client: Either, model: str, local: Calibrator) -> None:
    """The client learns and remembers the server's limit, and keeps row order."""
    assert len(LOGITS) > 10 * MAX_ROWS
    result = client.calibrate(model, LOGITS)
    np.testing.assert_allclose(result, local.predict(LOGITS), atol=2e-6)
    assert MAX_ROWS / 2 < client.session.max_rows <= MAX_ROWS
    assert client.session.max_bytes == 16 << 20


@asyncio_is_slow
def test_large_inputs_are_split_by_bytes(client: Either, name: str) -> None:
    """The byte limit is learned too; a single row over it is rejected."""
    classes = 1000
    client.create_model(name, classes, serve_uncalibrated=False)
    with pytest.raises(ResourceConflictError, match="champion"):
        client.calibrate(name, np.zeros((40, classes)))  # 320,000 bytes
    logits, labels = draw(40, classes, 1.0)
    client.upload_dataset(name, "val", logits, labels, progress=False)
    client.wait(client.fit(name, "val", map="identity", promote=True), progress=False)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(client.calibrate(name, logits), probabilities, atol=1e-6)
    assert MAX_BYTES / 2 <= client.session.max_bytes <= MAX_BYTES
    assert client.session.max_rows == 100_000

    wide = f"{name}-wide"
    client.create_model(wide, MAX_BYTES)
    with pytest.raises(
        InvalidRequestError, match=f"body: found .*at most {MAX_BYTES} bytes"
    ) as excinfo:
        client.calibrate(wide, np.zeros((2, MAX_BYTES)), calibrator=1)
    assert excinfo.value.status == 413


def test_promotion_during_a_request_does_not_mix_versions(
    client: Either, model: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows come from the version that served the first part."""
    send_batch, versions = calibration._send_batch, []

    def promoting(session: Any, rows: NDArray[Any], output_: Any, calibrator: str) -> Any:
        response = yield from send_batch(session, rows, output_, calibrator)
        versions.append(calibrator)
        server.promote(2, model)
        return response

    client.session.max_rows = 30
    expected = client.calibrate(model, LOGITS[:90], calibrator=1)
    monkeypatch.setattr(calibration, "_send_batch", promoting)
    try:
        np.testing.assert_array_equal(client.calibrate(model, LOGITS[:90]), expected)
    finally:
        server.promote(1, model)
    assert versions == ["1", "1", "1"]


def test_invalid_rows_are_reported_by_global_row_number(client: Either, model: str) -> None:
    """All rows are validated before any is sent."""
    rows = LOGITS.copy()
    rows[333, 2] = np.nan
    with pytest.raises(InputError, match=r"logits\[333\]\[2\]: found NaN"):
        client.calibrate(model, rows)
    for bad, found in (([], "no rows"), (LOGITS[None], "shape"), ([[1], [2, 3]], "lengths")):
        with pytest.raises(InputError, match=found):
            client.calibrate(model, bad)


def test_one_row_without_an_axis_of_rows_is_explained(client: Either, model: str) -> None:
    """Values (N,) are scores of class 1 of 2 classes, which the model has not."""
    row = LOGITS[0]
    for values in (row, row.tolist(), pd.Series(row)):
        message = r"logits: found 2 classes; accepted: .* one row is x\[None\]"
        for call in (client.calibrate, client.predict):
            with pytest.raises(InputError, match=message):
                call(model, values)
    with pytest.raises(InputError, match=r"logits: found 2 classes; accepted: 4 classes$"):
        client.calibrate(model, LOGITS[:, :2])


def test_missing_resources_raise_not_found(client: Either, model: str, name: str) -> None:
    """Each missing resource raises a library error."""
    with pytest.raises(InvalidRequestError, match="found 3 classes; accepted: 4") as excinfo:
        client.calibrate(model, LOGITS[:5, :3])
    assert isinstance(excinfo.value, InputError)
    assert (excinfo.value.field, excinfo.value.status) == ("logits", 422)
    for missing in ({"calibrator": 77}, {"calibrator": "nobody"}):
        with pytest.raises(ResourceNotFoundError, match="does not exist"):
            client.calibrate(model, LOGITS[:5], **missing)
    with pytest.raises(ResourceNotFoundError, match=f"model '{name}' does not exist"):
        client.calibrate(name, LOGITS[:5])
    # A different name: the server caches misses briefly.
    client.create_model(f"{name}-2", 4, serve_uncalibrated=False)
    with pytest.raises(ResourceConflictError, match="champion") as excinfo:
        client.calibrate(f"{name}-2", LOGITS[:5])
    assert isinstance(excinfo.value, ConflictError)


def test_uncalibrated_answers_raise_a_warning(client: Either, name: str) -> None:
    """Also if the rows need several requests."""
    client.create_model(name, 4)
    logits, _ = draw(120, 4, 3.0)  # three requests
    with pytest.warns(RecalibWarning, match=f"{name!r} has no champion"):
        answer = client.predict(name, logits)
    assert answer.uncalibrated
    assert answer.prediction_ids == [None] * 120
    np.testing.assert_allclose(answer.probabilities, scipy.special.softmax(logits, 1), rtol=1e-5)


def test_top_k_classes(client: Either, model: str) -> None:
    """Over several requests: the k most probable classes; ties prefer lower numbers."""
    logits = LOGITS[:120].copy()
    logits[7] = 0
    everything = client.calibrate(model, logits)
    for k in (1, 3, 4):
        result = client.calibrate_top(model, logits, k)
        order = np.argsort(-everything, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(result.classes, order)
        np.testing.assert_array_equal(
            result.probabilities, np.take_along_axis(everything, order, axis=1)
        )
    assert client.calibrate_top(model, logits[:1], 2, calibrator=2).classes.shape == (1, 2)
    for k in (0, 5):
        with pytest.raises(InputError, match=r"k: found .*; accepted: 1 to 4"):
            client.calibrate_top(model, logits, k)


def test_prediction_ids_match_their_rows(client: Either, model: str) -> None:
    """Each id belongs to its row; labels of all rows are accepted, in any batch size."""
    result = client.predict(model, LOGITS[:120])
    np.testing.assert_array_equal(result.probabilities, client.calibrate(model, LOGITS[:120]))
    ids = result.prediction_ids
    assert len(set(ids)) == 120
    assert None not in ids
    assert client.add_labels(model, ids, LABELS[:120]).counts == {"accepted": 120}
    assert client.add_labels(model, ids[:5], LABELS[:5]).counts == {"duplicate": 5}

    grouped = client.predict(model, LOGITS[:2], group="session").prediction_ids
    numbers = {base64.urlsafe_b64decode(id)[26:34] for id in grouped}
    assert numbers == {group_number("session").to_bytes(8, "little")}
    assert client.add_labels(model, grouped, LABELS[:2], groups=["a", ""]).counts == {"accepted": 2}
    with pytest.raises(InputError):
        client.add_labels(model, grouped, LABELS[:2], groups=["a"])

    none = client.predict(model, LOGITS[:120], ids=0)
    assert none.prediction_ids == [None] * 120
    some = client.predict(model, LOGITS, ids=0.5).prediction_ids
    # A fair coin for each of 600 rows: seven standard deviations are 86.
    assert 214 <= sum(label is not None for label in some) <= 386
    assert client.predict(model, LOGITS[:3], ids=1e-9).prediction_ids == [None] * 3
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="ids: found"):
            client.predict(model, LOGITS[:3], ids=wrong)
