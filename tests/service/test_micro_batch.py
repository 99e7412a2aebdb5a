"""Batches that are calibrated together get the same results as separate batches."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from recalib.errors import InputError, TooLargeError
from service.calibration import check_logits
from service.metrics import _Durations
from service.predict.request_formats import decode_json
from service.serving import micro_batch
from service.serving.ids import Origin
from service.serving.micro_batch import MAX_NUMBERS, MicroBatcher
from service.state import State
from tests.service.conftest import Service


@pytest.fixture
def state(shared: Service) -> State:
    """Application state with the loaded champion and a signing key for ids."""
    answer = shared.client.post("/v1/models/digits/calibrate", json={"logits": [[0, 1, 2, 3]]})
    assert answer.status_code == 200
    app: Any = shared.client.app
    loaded_state: State = app.state.recalib
    return loaded_state


def _batches(count: int) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 3, (1 + at % 16, 4)).astype(np.float32) for at in range(count)]


def test_micro_batches_do_not_change_results(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one turn share calls of at most 64 rows; every row gets its id."""
    loaded = state.calibrators.get("digits")
    assert loaded is not None
    rows_of_calls = []

    def counting(ids: Any, loaded: Any, origin: Any, share: float, logits: Any) -> Any:
        rows_of_calls.append(len(logits))
        return compute(ids, loaded, origin, share, logits)

    compute = micro_batch.compute
    monkeypatch.setattr(micro_batch, "compute", counting)
    batches = _batches(40)

    async def submit_all() -> list[Any]:
        batcher = MicroBatcher(state.ids)
        futures = [
            batcher.submit(loaded, Origin(), float(at % 2), batch)
            for at, batch in enumerate(batches)
        ]
        return await asyncio.gather(*futures)

    results = asyncio.run(submit_all())
    assert sum(rows_of_calls) == sum(map(len, batches))
    assert len(rows_of_calls) < 20
    assert max(rows_of_calls) <= 64
    for at, (batch, (probabilities, ids, _)) in enumerate(zip(batches, results, strict=True)):
        assert batch.size <= MAX_NUMBERS
        np.testing.assert_allclose(
            probabilities, loaded.calibrator.predict_float32(batch), rtol=2e-6
        )
        if at % 2:
            assert len(set(ids)) == len(batch)
        else:
            assert ids is None


def test_errors_reach_only_the_batches_of_their_call(state: State) -> None:
    loaded = state.calibrators.get("digits")
    assert loaded is not None

    async def submit_all() -> list[Any]:
        batcher = MicroBatcher(state.ids)
        right, wrong = np.zeros((1, 4), np.float32), np.zeros((1, 3), np.float32)
        cancelled = batcher.submit(loaded, Origin(), 0.0, right)
        cancelled.cancel()  # a client that left
        futures = [
            batcher.submit(loaded, Origin(), 0.0, right),
            batcher.submit(loaded, 1, 0.0, np.zeros((1, 4), "U1")),
            batcher.submit(loaded, 1, 0.0, wrong),
        ]
        return await asyncio.gather(*futures, return_exceptions=True)

    result, *errors = asyncio.run(submit_all())
    np.testing.assert_allclose(result[0], [[0.25] * 4])
    assert all(isinstance(error, Exception) for error in errors)


def test_concurrent_requests_get_the_right_answers(shared: Service, state: State) -> None:
    """Requests with different bodies through the whole application."""
    batches = _batches(30)
    app: Any = shared.client.app

    async def post_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            return await asyncio.gather(
                *(
                    client.post(
                        "/v1/models/digits/calibrate",
                        content=json.dumps({"logits": batch.tolist()}),
                    )
                    for batch in batches
                )
            )

    loaded = state.calibrators.get("digits")
    assert loaded is not None
    portal = shared.client.portal
    assert portal is not None
    for batch, response in zip(batches, portal.call(post_all), strict=True):
        assert response.status_code == 200, response.text
        expected = loaded.calibrator.predict_float32(batch)
        np.testing.assert_allclose(response.json()["probabilities"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "input", "error"),
    [
        ([[1.0, 2.0, 3.0]], "logits", InputError),
        ([[1.0, 2.0, 3.0, 4.0]], "probabilities", InputError),
        ([[0.0] * 4] * 11, "logits", TooLargeError),
        (np.array([[1, 2, 3, np.inf]]), "logits", InputError),
        (np.array([[-np.inf] * 4]), "logits", InputError),
    ],
)
def test_logits_are_checked_before_they_are_joined(
    state: State, values: Any, input: Any, error: type[Exception]
) -> None:
    loaded = state.calibrators.get("digits")
    assert loaded is not None
    with pytest.raises(error):
        check_logits(loaded, values, input, 10)


_number = st.one_of(
    st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False), st.none()
)


@given(st.lists(st.lists(_number, min_size=1, max_size=5), min_size=1, max_size=5))
def test_json_rows_stay_lists_only_if_float32_holds_them(rows: list[list[Any]]) -> None:
    try:
        values = decode_json(json.dumps({"logits": rows}).encode(), "logits")
    except InputError:
        assert len({len(row) for row in rows}) > 1
        return
    is_plain = len({len(row) for row in rows}) == 1 and all(
        number is not None and abs(number) < 3e38 for row in rows for number in row
    )
    assert isinstance(values, list) == is_plain
    if is_plain:
        assert values == rows
        assert bool(np.isfinite(np.array(values, np.float32)).all())


@given(st.lists(st.one_of(st.floats(0, 100), st.sampled_from([0.0005, 0.001, 60.0])), min_size=1))
def test_durations_count_as_prometheus_histogram_does(seconds: list[float]) -> None:
    registry = CollectorRegistry()
    buckets = (0.0005, 0.001, 0.5, 60)
    histogram = Histogram("one", "By a scan.", ["route"], buckets=buckets, registry=registry)
    other = _Durations("other", "By bisection.", ["route"], buckets=buckets, registry=registry)
    for amount in seconds:
        histogram.labels("r").observe(amount)
        other.labels("r").observe(amount)

    def values(name: str) -> dict[tuple[str, str], float]:
        return {
            (sample.name.removeprefix(name), sample.labels.get("le", "")): sample.value
            for family in registry.collect()
            for sample in family.samples
            if family.name == name and not sample.name.endswith("_created")
        }

    assert values("other") == pytest.approx(values("one"))
