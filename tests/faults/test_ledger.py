"""The ledger detects every violation that it checks."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from recalib.core.prediction_ids import Prediction
from tests.end_to_end.programs import Programs
from tests.faults.ledger import MODEL, Entry, Ledger, open_ledger


class _Stub:
    """A server with one answer to every request."""

    def __init__(self, **answer: Any) -> None:
        self._answer = answer

    def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
        return self._answer


@pytest.fixture
def ledger(programs: Programs) -> Iterator[Ledger]:
    """The ledger of a registry whose champion is version 1."""
    with open_ledger(f"sqlite:///{programs.home / 'recalib.db'}", programs) as ledger:
        yield ledger


def test_lost_and_partial_uploads_are_detected(ledger: Ledger) -> None:
    """An upload without its row, without its blob, or with another blob."""
    ledger.check(_no_server())
    ledger.uploads = [Entry("validation", "0" * 64)]
    with pytest.raises(AssertionError):
        ledger.check(_no_server())
    ledger.uploads = [Entry("other", "0" * 64)]
    ledger.check(_no_server())
    ledger.uploads[0].acknowledged = True
    with pytest.raises(AssertionError, match="other is lost"):
        ledger.check(_no_server())


def test_blobs_without_a_dataset_are_detected(ledger: Ledger) -> None:
    with ledger.registry.blobs.writer() as blob:
        blob.write(b"nothing refers to this")
        blob.commit()
    with pytest.raises(AssertionError, match="blobs without a data set"):
        ledger.check(_no_server())


def test_reordered_lost_or_repeated_promotions_are_detected(ledger: Ledger) -> None:
    """The history has one promotion, to version 2."""
    _promote(ledger, 2, "reason a")
    first, second = Entry("reason a", 2), Entry("reason b", 1)
    ledger.promotions = [first, second]
    ledger.check(_no_server())
    ledger.promotions = [first, Entry("reason b", 1, acknowledged=True)]
    with pytest.raises(AssertionError, match="reason b is lost"):
        ledger.check(_no_server())
    _promote(ledger, 1, "reason b")
    ledger.promotions = [second, first]
    with pytest.raises(AssertionError):
        ledger.check(_no_server())
    ledger.promotions = [first, second]
    ledger.check(_no_server())
    _promote(ledger, 2, "reason a")
    with pytest.raises(AssertionError):
        ledger.check(_no_server())


@pytest.mark.parametrize(
    ("stored", "acknowledged", "message"),
    [
        (2, True, None), (0, False, None),
        (1, False, "half a batch"), (0, True, "labels are lost"), (3, True, "3 labels, 2 of them"),
    ],
)  # fmt: skip
def test_partial_batch_of_labels_is_detected(
    ledger: Ledger, stored: int, acknowledged: bool, message: str | None
) -> None:
    digests = [bytes([number] * 16) for number in range(3)]
    ids = [base64.urlsafe_b64encode(bytes(50) + digest).decode() for digest in digests]
    ledger.labels = [Entry("", [{"prediction_id": id} for id in ids[:2]], acknowledged)]
    with ledger.registry.transaction() as tx:
        model = tx.models.get(MODEL)
        labels = [(Prediction(model.id, 1, 1.0, 0.5, 0.5, 1, digest), 1) for digest in digests]
        tx.labels.add(model, labels[:stored])
    with pytest.raises(AssertionError, match=message) if message else nullcontext():
        ledger.check(_no_server())


@pytest.mark.parametrize("records", [0, 2])
def test_model_without_its_audit_record_is_detected(ledger: Ledger, records: int) -> None:
    """Or with two; and a model that is lost."""
    ledger.models = [Entry("other", acknowledged=True)]
    with pytest.raises(AssertionError, match="other is lost"):
        ledger.check(_no_server())
    with ledger.registry.transaction() as tx:
        tx.models.create("other", None, 3, "anna")
        for _ in range(records):
            tx.audit.record("anna", "create_model", "other", "other")
    with pytest.raises(AssertionError, match="create_model in the audit trail"):
        ledger.check(_no_server())


def test_changed_job_id_is_detected(ledger: Ledger) -> None:
    ledger.fits = [Entry("key", "job-1", acknowledged=True)]
    with pytest.raises(AssertionError):
        ledger.check(_no_server(id="job-2"))


def test_wrong_answers_are_detected(ledger: Ledger) -> None:
    ledger.wrong = ["predict: 500"]
    with pytest.raises(AssertionError, match="predict: 500"):
        ledger.check(_no_server())


def _no_server(**answer: Any) -> Any:
    return _Stub(**answer)


def _promote(ledger: Ledger, version: int, reason: str) -> None:
    with ledger.registry.transaction() as tx:
        tx.aliases.set(tx.models.get(MODEL), "champion", version, "anna", reason)
