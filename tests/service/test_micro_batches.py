"""Calibrate requests that are answered together get what each would get alone."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from recalib.errors import InputError, TooLargeError
from service.http.fast_routes import Asked, Joint
from service.metrics import _Durations
from service.predict.request_formats import JSON, NPY, decode_json
from service.predict.rest import respond
from service.state import State
from tests.service.conftest import Service


def asked(body: bytes, media_type: str = JSON, **query: str) -> Asked:
    return Asked({"model": "digits"}, query, {b"content-type": media_type.encode()}, body)


def document(rows: list[list[Any]], name: str = "logits") -> bytes:
    return json.dumps({name: rows}).encode()


def npy(rows: list[list[float]]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(rows, np.float64))
    return file.getvalue()


@pytest.fixture
def state(shared: Service) -> State:
    """What endpoints have, with the champion loaded and a key for ids."""
    answer = shared.client.post("/v1/models/digits/calibrate", json={"logits": [[0, 1, 2, 3]]})
    assert answer.status_code == 200
    app: Any = shared.client.app
    found: State = app.state.recalib
    return found


def joint(found: Any) -> Joint:
    assert isinstance(found, Joint)
    return found


def test_mixed_requests_are_one_work(state: State) -> None:
    """Rows as they came, a masked class, a .npy file in JSON's form, up to sixteen rows."""
    rng = np.random.default_rng(0)
    bodies = [document(rng.normal(0, 3, (rows, 4)).tolist()) for rows in (1, 1, 3, 16, 2)]
    bodies += [document([[1.5, None, 0.25, -2]]), document([[1, 2, 3, 4]])]
    requests = [asked(body) for body in bodies]
    requests.insert(3, asked(npy([[0.5, 1.0, -1.0, 2.0]] * 2), NPY))
    parts = [joint(respond(state, one)) for one in requests]
    assert len({one.work for one in parts}) == 1
    together = parts[0].work([one.part for one in parts])
    for one, answer in zip(parts, together, strict=True):
        alone = json.loads(one.work([one.part])[0].whole)
        found = json.loads(answer.whole)
        assert found["calibrator"] == alone["calibrator"]
        assert len(found["prediction_ids"]) == len(one.part)
        np.testing.assert_allclose(found["probabilities"], alone["probabilities"], rtol=2e-6)


@pytest.mark.parametrize(
    ("body", "query", "error"),
    [
        (document([[1, 2, 3]]), {}, InputError),  # another K
        (document([[1, 2, 3, 4], [1, 2, 3]]), {}, InputError),
        (document([[1, 2, 3, 1e39]]), {}, InputError),
        (document([[None] * 4]), {}, InputError),
        (document([]), {}, InputError),
        (document([[]]), {}, InputError),
        (
            document([[0.5, 0.25, 0.125, 3]], "probabilities"),
            {"input": "probabilities"},
            InputError,
        ),
        (document([[0.0] * 4] * 11), {}, TooLargeError),
    ],
)
def test_what_is_not_plain_is_checked(
    state: State, body: bytes, query: dict[str, str], error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(state.settings, "max_rows", 10)
    with pytest.raises(error):
        respond(state, asked(body, **query))


_number = st.one_of(
    st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False), st.none()
)


@given(st.lists(st.lists(_number, min_size=1, max_size=5), min_size=1, max_size=5))
def test_plain_rows_are_what_the_array_holds(rows: list[list[Any]]) -> None:
    """They come as they are where float32 holds each, and as a checked array where it does not."""
    body = document(rows)
    try:
        found = decode_json(body, "logits")
    except InputError:
        assert len({len(row) for row in rows}) > 1
        return
    plain = len({len(row) for row in rows}) == 1 and all(
        one is not None and abs(one) < 3e38 for row in rows for one in row
    )
    assert isinstance(found, list) == plain
    if plain:
        assert found == rows
        assert bool(np.isfinite(np.array(found, np.float32)).all())


@given(st.lists(st.one_of(st.floats(0, 100), st.sampled_from([0.0005, 0.001, 60.0])), min_size=1))
def test_observing_several_is_observing_each(seconds: list[float]) -> None:
    registry = CollectorRegistry()
    buckets = (0.0005, 0.001, 0.5, 60)
    one = Histogram("one", "One by one.", ["route"], buckets=buckets, registry=registry)
    all_ = _Durations("all", "All at once.", ["route"], buckets=buckets, registry=registry)
    for each in seconds:
        one.labels("r").observe(each)
    all_.labels("r").observe_all(seconds)

    def values(name: str) -> dict[tuple[str, str], float]:
        return {
            (sample.name.removeprefix(name), sample.labels.get("le", "")): sample.value
            for family in registry.collect()
            for sample in family.samples
            if family.name == name and not sample.name.endswith("_created")
        }

    assert values("all") == pytest.approx(values("one"))
