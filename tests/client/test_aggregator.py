"""The aggregator: all predictions are counted, labels are of a sample, and nothing is lost."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import recalib
from recalib.client import Aggregator, Client, Retries, ServiceError, UnreachableError
from recalib.client.sampling import SampleShare
from recalib.errors import InputError
from tests.cli.running import LABELS, LOGITS
from tests.client.conftest import MAX_LABELS
from tests.client.flaky import Act, Flaky, closes, problem, says
from tests.end_to_end.programs import Server
from tests.fitting.conftest import draw

_FITTED = recalib.fit(LOGITS, LABELS)
_CALIBRATOR = {
    "model": "m",
    "version": 1,
    "dataset": "d",
    "job": "j",
    "created_at": "2026-01-01T00:00:00+00:00",
    "card": _FITTED.card.to_dict(),
}

_MODEL = {"name": "m", "classes": 4, "labels": None, "created_at": "2026-01-01T00:00:00+00:00"}


@pytest.fixture
def faulty(flaky: Flaky) -> Iterator[Client]:
    """A client that tries once."""
    with Client(flaky.url, retries=Retries(1)) as client:
        yield client


def _aggregator(flaky: Flaky, client: Client, max_labels: int = 100) -> Aggregator:
    flaky.will(says(200, _MODEL), says(200, _CALIBRATOR))
    return Aggregator(client, "m", calibrator=1, flush_seconds=3600, max_labels=max_labels)


def _answer(rows: int) -> Act:
    items = [{"status": "accepted", "reason": ""}] * rows
    return says(200, {"counts": {"accepted": rows}, "items": items})


@pytest.mark.slow
def test_all_predictions_are_counted_and_those_of_the_sample_labelled(server: Server) -> None:
    """Small requests of the server's limit; monitoring sees traffic and labels."""
    with Client(server.url) as client:
        client.create_model("aggregated", 4)
        client.upload_dataset("aggregated", "val", LOGITS, LABELS, progress=False)
        client.wait(client.fit("aggregated", "val", promote=True), progress=False)
        with Aggregator(client, "aggregated", width=0.2, period_seconds=1, seed=1) as aggregator:
            sample = aggregator.count(_FITTED.predict(LOGITS))
            assert MAX_LABELS < sample.sum() < 100
            times = time.time() - np.arange(sample.sum())
            aggregator.label(LOGITS[sample], LABELS[sample], times)
        state = aggregator.state
        assert (state.predictions, state.dropped_predictions) == (len(LOGITS), 0)
        assert (state.labels, state.dropped_labels) == ({"accepted": sample.sum()}, 0)
        with pytest.raises(InputError, match="classes"):
            aggregator.label(LOGITS[:, :3], LABELS, np.zeros(len(LABELS)))
        with pytest.raises(InputError, match="closed"):
            aggregator.count(_FITTED.predict(LOGITS))


def test_sums_wait_for_the_server_and_keep_their_key(flaky: Flaky, faulty: Client) -> None:
    """A request whose response was lost is repeated as it was; later sums are sent after it."""
    aggregator = _aggregator(flaky, faulty)
    probabilities = _FITTED.predict(LOGITS)
    aggregator.count(probabilities)
    flaky.will(closes(b""), problem(500, "broken"))
    for kind in (UnreachableError, ServiceError):
        with pytest.raises(kind):
            aggregator.flush()
    aggregator.count(probabilities[:10])
    flaky.will(says(200, {"accepted": 300, "expired": 0}), says(200, {"accepted": 9, "expired": 1}))
    aggregator.close()
    first, _, repeat, later = flaky.received[2:]
    assert (first.body, first.headers["idempotency-key"]) == (
        repeat.body,
        repeat.headers["idempotency-key"],
    )
    assert later.headers["idempotency-key"] != first.headers["idempotency-key"]
    sums = [json.loads(request.body)["buckets"][0] for request in (repeat, later)]
    assert [sum(bucket["predictions"]) for bucket in sums] == [300, 10]
    total = sum(sum(bucket["confidence_sums"]) for bucket in sums)
    confidences = probabilities.max(axis=1)
    assert total == pytest.approx(confidences.sum() + confidences[:10].sum())
    assert aggregator.state[:1] + aggregator.state[2:] == (309, 1, 0)


def test_two_classes_are_counted_by_the_positive_class(flaky: Flaky, faulty: Client) -> None:
    """With the target in the request; that of other models has none, which older servers refuse."""
    logits, labels = draw(300, 2, 2.0)
    fitted = recalib.fit(logits, labels)
    flaky.will(says(200, _MODEL), says(200, {**_CALIBRATOR, "card": fitted.card.to_dict()}))
    aggregator = Aggregator(faulty, "m", calibrator=1, flush_seconds=3600)
    probabilities = fitted.predict(logits)
    aggregator.count(probabilities)
    aggregator.count(probabilities[:, 1])  # the same, in one column
    flaky.will(says(200, {"accepted": 600, "expired": 0}))
    aggregator.close()
    body = json.loads(flaky.received[-1].body)
    assert body["target"] == "positive_class"
    totals = [sum(bucket["confidence_sums"]) for bucket in body["buckets"]]
    assert sum(totals) == pytest.approx(2 * probabilities[:, 1].sum())
    aggregator = _aggregator(flaky, faulty)
    aggregator.count(_FITTED.predict(LOGITS))
    flaky.will(says(200, {"accepted": 300, "expired": 0}))
    aggregator.close()
    assert set(json.loads(flaky.received[-1].body)) == {"buckets", "segment"}


def test_what_does_not_fit_is_reported(
    flaky: Flaky, faulty: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest labels leave a full buffer; `close` reports what the server does not take."""
    aggregator = _aggregator(flaky, faulty, max_labels=8)
    aggregator.count(_FITTED.predict(LOGITS[:5]))
    aggregator.label(LOGITS[:10], LABELS[:10], np.arange(10.0))
    assert aggregator.state.dropped_labels == 2
    violation = {"field": "buckets", "found": "some", "accepted": "others"}
    flaky.will(problem(422, "no", violation), closes(b""))
    with caplog.at_level(logging.ERROR):
        aggregator.close()
    assert aggregator.state == (0, {}, 5, 10)
    assert "5 predictions and 0 labels are given up" in caplog.text
    assert "0 predictions and 8 labels are given up" in caplog.text
    sent = json.loads(flaky.received[-1].body)
    assert (sent["times"][0], sent["counted"]) == (2.0, True)


@pytest.mark.parametrize("label", [object(), 1.5, True, None, "\ud800"])
def test_invalid_label_does_not_block_others(flaky: Flaky, faulty: Client, label: object) -> None:
    """It is rejected by `label`, as the server would refuse all rows of its request."""
    aggregator = _aggregator(flaky, faulty)
    labels: list[Any] = [np.int64(1), label]
    with pytest.raises(InputError, match="found"):
        aggregator.label(LOGITS[:2], labels, [1.0, 2.0])
    aggregator.label(LOGITS[:2], [np.int64(1), np.str_("cat")], [1.0, 2.0])  # type: ignore[list-item]
    flaky.will(_answer(2))
    aggregator.close()
    assert json.loads(flaky.received[-1].body)["labels"] == [1, "cat"]
    assert aggregator.state == (0, {"accepted": 2}, 0, 0)


@pytest.mark.parametrize("times", [[1.0, np.nan], [1.0, np.inf], [[1.0], [2.0]]])
def test_invalid_time_does_not_block_others(flaky: Flaky, faulty: Client, times: Any) -> None:
    aggregator = _aggregator(flaky, faulty)
    with pytest.raises(InputError, match="times"):
        aggregator.label(LOGITS[:2], [1, 2], times)
    aggregator.close()
    assert (len(flaky.received), aggregator.state) == (2, (0, {}, 0, 0))


def test_labels_carry_the_groups_of_their_rows(flaky: Flaky, faulty: Client) -> None:
    """Without any group, the request has none, which older servers refuse."""
    aggregator = _aggregator(flaky, faulty)
    aggregator.label(LOGITS[:2], [1, 2], [1.0, 2.0])
    flaky.will(_answer(2))
    aggregator.flush()
    assert "groups" not in json.loads(flaky.received[-1].body)
    aggregator.label(LOGITS[:3], [1, 2, 3], [1.0, 2.0, 3.0], groups=np.array(["s7", "s7", ""]))
    aggregator.label(LOGITS[:1], [1], [4.0])
    flaky.will(_answer(4))
    aggregator.close()
    assert json.loads(flaky.received[-1].body)["groups"] == ["s7", "s7", "", ""]


@pytest.mark.parametrize("groups", [["a"], ["a", 7], ["a", None], ["a", "\ud800"]])
def test_invalid_group_does_not_block_others(flaky: Flaky, faulty: Client, groups: Any) -> None:
    aggregator = _aggregator(flaky, faulty)
    with pytest.raises(InputError, match="found"):
        aggregator.label(LOGITS[:2], [1, 2], [1.0, 2.0], groups=groups)
    aggregator.close()
    assert (len(flaky.received), aggregator.state) == (2, (0, {}, 0, 0))


def test_refused_bucket_does_not_affect_others(flaky: Flaky, faulty: Client) -> None:
    """The buckets of a refused request are sent in halves, each with its own key."""
    aggregator = _aggregator(flaky, faulty)
    for minute in range(3):
        aggregator.count(_FITTED.predict(LOGITS[: minute + 1]), at=60.0 * minute)
    violation = {"field": "buckets[1].started_at", "found": "some", "accepted": "others"}
    refused = problem(422, "no", violation)
    accepted = [says(200, {"accepted": count, "expired": 0}) for count in (1, 3)]
    flaky.will(refused, accepted[0], refused, refused, accepted[1])
    aggregator.close()
    requests = flaky.received[2:]
    sizes = [[sum(b["predictions"]) for b in json.loads(r.body)["buckets"]] for r in requests]
    assert sizes == [[1, 2, 3], [1], [2, 3], [2], [3]]
    assert len({request.headers["idempotency-key"] for request in requests}) == 5
    assert aggregator.state == (4, {}, 2, 0)


def test_full_buffer_does_not_shorten_the_pause_after_an_error(
    flaky: Flaky, faulty: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recalib.client.aggregator._MAX_ROWS", 4)
    aggregator = _aggregator(flaky, faulty)
    flaky.will(problem(500, "broken"))
    for _ in range(8):
        aggregator.label(LOGITS[:4], LABELS[:4], np.arange(4.0))
        time.sleep(0.02)
    assert len(flaky.received) == 3
    flaky.will(_answer(4))
    aggregator.close()
    assert aggregator.state == (0, {"accepted": 32}, 0, 0)


def test_overconfident_model_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own confidences, all 1, say that no label is needed."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    share = SampleShare(0.02, 3600)
    now = 100.0
    share.add(np.ones(100_000))
    assert share.value() * 1000 * 3600 == pytest.approx(4 * 1.96**2 * 0.01 / 0.02**2, rel=1e-3)


def test_sample_gives_the_wanted_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a thousand predictions a second, and after the rate has fallen to a tenth."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    share = SampleShare(0.02, 3600)
    assert share.value() == 1.0
    confidences = np.random.default_rng(0).beta(5, 2, 1000)
    variance = float(np.mean(confidences * (1 - confidences)))
    for rate in (1000, 100):
        for _ in range(2000):
            now += 1
            share.add(confidences[:rate])
            labels = share.value() * rate * 3600
        variance = float(np.mean(confidences[:rate] * (1 - confidences[:rate])))
        width = 2 * 1.96 * np.sqrt(variance / labels)
        assert width == pytest.approx(0.02, rel=0.1)
