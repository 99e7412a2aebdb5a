"""Late labels, through a server with a small request limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recalib.client import InvalidRequestError, InvalidResponseError, ResourceNotFoundError
from recalib.core.prediction_ids import BatchSummary, mint
from recalib.errors import InputError
from recalib.registry import Registry
from tests.client.conftest import MAX_LABELS
from tests.client.either import Either
from tests.client.flaky import Flaky, resets, says
from tests.end_to_end.programs import Programs


@pytest.fixture
def ids(client: Either, name: str, shared_programs: Programs) -> list[str]:
    """Ids of predictions by a model `name` of four classes with labels."""
    client.create_model(name, ["a", "b", "c", "d"])
    registry = Registry(
        f"sqlite:///{shared_programs.home / 'recalib.db'}", str(shared_programs.home / "blobs")
    )
    with registry.transaction() as tx:
        model, key = tx.models.get(name).id, tx.signing_keys.first()
    registry.close()
    count = 3 * MAX_LABELS + 1
    halves = np.full(count, 0.5, np.float32)
    predictions = BatchSummary(halves, halves, np.zeros(count, np.int64))
    return mint(key, model, 1, time.time(), predictions)


def test_each_label_gets_its_own_outcome(client: Either, name: str, ids: list[str]) -> None:
    """Each row has its own outcome, in order, over several requests."""
    labels = np.arange(len(ids)) % 4
    result = client.add_labels(name, ids[:-1], labels[:-1])
    assert result.counts == {"accepted": len(ids) - 1}
    assert MAX_LABELS / 2 <= client.session.max_labels <= MAX_LABELS

    wrong = [*labels[:-2].tolist(), (labels[-2] + 1) % 4, 0]
    result = client.add_labels(name, [*ids[:-1], "forged"], wrong)
    assert [item.status for item in result.items] == [
        *["duplicate"] * (len(ids) - 2),
        "conflict",
        "invalid",
    ]
    assert result.counts == {"duplicate": len(ids) - 2, "conflict": 1, "invalid": 1}
    assert "labelled" in result.items[-2].reason
    assert "characters" in result.items[-1].reason

    named = client.add_labels(name, ids[-1:], ["d"])
    assert (named.counts, named.items[0].reason) == ({"accepted": 1}, "")
    assert client.add_labels(name, ids[-1:], [3]).counts == {"duplicate": 1}
    assert client.add_labels(name, [], []).items == []


def test_invalid_labels_are_rejected(client: Either, name: str) -> None:
    with pytest.raises(InputError, match="labels: found 1 labels; accepted: 2, one for each"):
        client.add_labels(name, ["i", "j"], [0])
    with pytest.raises(InputError, match="prediction_ids: found no id in 1 of 2 rows: 1; accepted"):
        client.add_labels(name, ["i", None], [0, 1])
    with pytest.raises(ResourceNotFoundError, match="does not exist"):
        client.add_labels(name, ["i"], [0])
    client.create_model(name, 4)
    with pytest.raises(InputError, match=r"labels\[0\]: found 0.5; accepted: a class index"):
        client.add_labels(name, ["i"], [0.5])
    with pytest.raises(InvalidRequestError, match="prediction_id"):
        client.add_labels(name, [7], [0])


def test_response_for_other_labels_is_rejected(
    client_of: Callable[..., Either], flaky: Flaky
) -> None:
    """Outcomes of other ids are rejected; a broken connection is retried."""
    outcome: dict[str, Any] = {"status": "accepted"}
    flaky.will(resets, says(200, {"counts": {"accepted": 1}, "items": [outcome]}))
    assert client_of(flaky.url).add_labels("m", ["i"], [0]).counts == {"accepted": 1}
    with pytest.raises(InvalidResponseError, match="is about 1 labels of 2"):
        client_of(flaky.url).add_labels("m", ["i", "j"], [0, 1])
