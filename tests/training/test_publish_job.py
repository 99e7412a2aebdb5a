"""Publication of an uploaded calibrator: what it is compared on, and when it is promoted."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import func, select

import recalib
from recalib import Calibrator
from recalib.core.card import DataSummary
from recalib.fitting.fit import fit
from recalib.fitting.row_digests import encode_digests, row_digests
from recalib.registry import Registry, tables
from recalib.registry.job_kinds import PUBLISH
from service.calibrators.parameter_file import check_parameter_file
from tests.fitting.conftest import draw
from tests.training.test_champion_comparison import champion, run_fit, upload
from training.main import HANDLERS
from training.worker import Worker

__all__ = ["champion"]

pytestmark = pytest.mark.sqlite_only

Logits, Labels = NDArray[np.float64], NDArray[np.int64]
_CLASSES, _OLD = 60, 400


@pytest.fixture
def rows() -> tuple[Logits, Labels]:
    """Rows of which the champion, vector scaling, has seen the first 400."""
    logits, labels = draw(1_400, _CLASSES, 2.0, seed=4)
    return logits.astype(np.float32).astype(np.float64), labels


def run_publish(
    registry: Registry,
    fitted: Calibrator,
    dataset: str | None,
    digests: bytes | None = None,
    promote: bool | str = "if_better",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Publish a calibrator; return the job's result and the card."""
    content = check_parameter_file(fitted.to_bytes(), _CLASSES, None).to_bytes()
    payload = {"model": "m", "dataset": dataset, "promote": promote}
    with registry.transaction() as tx:
        model = tx.models.get("m")
        more: dict[str, Any] = {"parameters": content, "row_digests": digests}
        id = tx.jobs.enqueue(PUBLISH, payload, model=model, **more).id
    Worker(registry, HANDLERS, name="test").work_once(threading.Event())
    with registry.reading() as tx:
        job = tx.jobs.get(id)
        assert job.state == "succeeded", job.error
        assert job.result is not None
        card = tx.calibrators.get(model, job.result["version"]).card
    return job.result, card


def digests_of(logits: Logits) -> bytes:
    return encode_digests(row_digests(logits))


@pytest.mark.both_databases
def test_better_calibrator_is_promoted_on_rows_that_neither_was_fitted_on(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """Of 800 rows of the data set, 100 are the champion's and 300 are its own."""
    logits, labels = rows
    upload(champion, "later", logits[300:1100], labels[300:1100])
    fitted = recalib.fit(logits[800:], labels[800:])
    result, card = run_publish(champion, fitted, "later", digests_of(logits[800:]))
    assert result["promoted"], result["reason"]
    assert "rows that it was not fitted on" in result["reason"]
    selection = card["selection"]
    assert (selection["rows"], selection["dataset"]) == (400, "later")
    expected = -np.log(fitted.predict(logits[400:800])[np.arange(400), labels[400:800]])
    assert selection["nll"] == pytest.approx(expected.mean())
    with champion.reading() as tx:
        kept = select(func.count(tables.jobs.c.parameters))
        assert tx.connection.scalar(kept) == 0


def test_worse_calibrator_is_not_promoted(champion: Registry, rows: tuple[Logits, Labels]) -> None:
    logits, labels = rows
    upload(champion, "later", logits[_OLD:800], labels[_OLD:800])
    fitted = recalib.fit(logits[800:] / 5, labels[800:])
    result, _ = run_publish(champion, fitted, "later", digests_of(logits[800:] / 5))
    assert not result["promoted"]
    assert "does not beat vector" in result["reason"]


@pytest.mark.parametrize(
    ("dataset", "sends_digests", "reason"),
    [
        (None, True, "the request names no data set to compare on"),
        pytest.param(
            "later",
            False,
            "the rows that it was fitted on are not known; send their digests",
            marks=pytest.mark.slow,
        ),
        ("mine", True, "fitted on all but 50 of the 650 rows of mine, and 100 other rows"),
    ],
)
def test_without_unseen_rows_if_better_does_not_promote(
    champion: Registry,
    rows: tuple[Logits, Labels],
    dataset: str | None,
    sends_digests: bool,
    reason: str,
) -> None:
    logits, labels = rows
    upload(champion, "later", logits[_OLD:800], labels[_OLD:800])
    upload(champion, "mine", logits[750:], labels[750:])
    fitted = recalib.fit(logits[800:], labels[800:])
    digests = digests_of(logits[800:]) if sends_digests else None
    result, card = run_publish(champion, fitted, dataset, digests)
    assert not result["promoted"]
    assert reason in result["reason"]
    assert (card["metrics"], card["confidences"]) == ({}, None)
    # It is a version all the same, and may be promoted by request.
    result, _ = run_publish(champion, fitted, dataset, digests, promote=True)
    assert (result["promoted"], result["version"]) == (True, 3)


def test_rows_are_recognised_by_the_digest_of_the_file(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """The card of a fit to a file has its digest; the model may have the same file."""
    logits, labels = rows
    upload(champion, "mine", logits[700:], labels[700:])
    upload(champion, "later", logits[_OLD:], labels[_OLD:])
    with champion.reading() as tx:
        digest = tx.datasets.get(tx.models.get("m"), "mine").digest
    data = DataSummary(700, digest, "mine.npz")
    fitted = fit(logits[700:], labels[700:], data=data)
    result, card = run_publish(champion, fitted, "later")
    assert card["selection"]["rows"] == 300
    with champion.reading() as tx:
        version = tx.calibrators.get(tx.models.get("m"), result["version"])
    assert version.dataset == "mine"


@pytest.mark.slow
def test_digests_of_fitted_rows_are_recorded_without_a_comparison(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """The data set may be deleted later, and the version compared then."""
    logits, labels = rows
    upload(champion, "mine", logits[700:], labels[700:])
    with champion.reading() as tx:
        digest = tx.datasets.get(tx.models.get("m"), "mine").digest
    fitted = fit(logits[700:], labels[700:], data=DataSummary(700, digest, "mine.npz"))
    result, _ = run_publish(champion, fitted, None)
    with champion.reading() as tx:
        recorded = tx.calibrators.row_digests(tx.models.get("m"), result["version"])
    assert recorded == digests_of(logits[700:])


def test_later_fit_is_compared_with_a_published_champion(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """Its rows are recognised by the digests that came with it."""
    logits, labels = rows
    fitted = recalib.fit(logits[800:], labels[800:])
    run_publish(champion, fitted, None, digests_of(logits[800:]), promote=True)
    upload(champion, "mixed", logits[_OLD:1000], labels[_OLD:1000])
    result = run_fit(champion, "mixed", "temperature")
    assert "on the 400 of 600 rows that version 2 was not fitted on" in result["reason"]


def test_without_a_champion_the_reference_is_the_classifier(
    registry: Registry, rows: tuple[Logits, Labels]
) -> None:
    logits, labels = rows
    with registry.transaction() as tx:
        tx.models.create("m", None, _CLASSES, "test")
    upload(registry, "later", logits[:800], labels[:800])
    fitted = recalib.fit(logits[800:], labels[800:])
    result, card = run_publish(registry, fitted, "later", digests_of(logits[800:]))
    assert result["promoted"]
    assert "beats identity" in result["reason"]
    assert card["selection"]["reference_version"] is None
