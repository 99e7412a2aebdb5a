"""Promotion compares a version with the champion on rows that neither was fitted on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import update

from recalib.files import MEDIA_TYPES
from recalib.fitting.cross_validation import Refit, compare_by_cross_validation
from recalib.fitting.fit import fit
from recalib.fitting.row_digests import encode_digests, row_digests
from recalib.registry import Registry, tables
from service.calibrators.handlers import request_fit
from service.calibrators.schemas import CalibratorCreate
from service.datasets.handlers import register_dataset
from service.datasets.survey import survey
from tests.files.examples import write_npz, write_parquet
from tests.fitting.conftest import draw
from tests.fitting.test_cross_validation import candidate
from tests.registry.scenes import a_lease
from training.main import HANDLERS
from training.worker import Worker

pytestmark = pytest.mark.sqlite_only

Logits, Labels = NDArray[np.float64], NDArray[np.int64]
_CLASSES = 60
#: Rows that the champion is fitted on, in the data set `old`.
_OLD = 400


@pytest.fixture
def rows() -> tuple[Logits, Labels]:
    """Rows on which temperature scaling is best, and vector scaling overfits."""
    logits, labels = draw(1_000, _CLASSES, 2.0, seed=4)
    return logits.astype(np.float32).astype(np.float64), labels


@pytest.fixture
def champion(registry: Registry, rows: tuple[Logits, Labels]) -> Registry:
    """A registry whose champion is vector scaling of the first rows."""
    with registry.transaction() as tx:
        tx.models.create("m", None, _CLASSES, "test")
    upload(registry, "old", rows[0][:_OLD], rows[1][:_OLD])
    result = run_fit(registry, "old", "vector", promote=True)
    assert result["promoted"]
    return registry


def upload(
    registry: Registry, name: str, logits: Logits, labels: Labels, kind: str = "application/x-npz"
) -> None:
    write = write_npz if kind == "application/x-npz" else write_parquet
    with registry.blobs.writer() as blob:
        blob.write(write(logits, labels))
        with blob.open_temporary() as file:
            summary = survey(file, MEDIA_TYPES[kind], "logits", _CLASSES)
        with registry.storing(blob) as (tx, digest):
            model = tx.models.get("m")
            register_dataset(tx, model, name, digest, blob.size, kind, "logits", summary)


def run_fit(registry: Registry, dataset: str, map: str, **more: Any) -> dict[str, Any]:
    """Run a fit job; return its result."""
    with registry.transaction() as tx:
        request = CalibratorCreate(dataset=dataset, map=map, **more)
        id = request_fit(tx, tx.models.get("m"), request).id
    Worker(registry, HANDLERS, name="test").work_once(threading.Event())
    with registry.reading() as tx:
        job = tx.jobs.get(id)
    assert job.state == "succeeded", job.error
    assert job.result is not None
    return job.result


def selection(registry: Registry, version: int) -> dict[str, Any]:
    with registry.reading() as tx:
        return tx.calibrators.get(tx.models.get("m"), version).card["selection"]


@pytest.mark.parametrize(
    "form",
    [
        "as they were",
        "shuffled",
        pytest.param("parquet of float32", marks=pytest.mark.slow),
    ],
)
@pytest.mark.both_databases
def test_overfitted_champion_is_replaced_when_its_data_grows(
    champion: Registry, rows: tuple[Logits, Labels], form: str
) -> None:
    """It is refitted without the rows of a fold: on its own rows it cannot be beaten."""
    logits, labels = rows[0][:440], rows[1][:440]
    kind = "application/x-npz"
    if form != "as they were":
        order = np.random.default_rng(0).permutation(440)
        logits, labels = logits[order], labels[order]
    if form == "parquet of float32":
        logits, kind = logits.astype(np.float32), "application/vnd.apache.parquet"
    upload(champion, "grown", logits, labels, kind)
    result = run_fit(champion, "grown", "temperature")
    assert result["promoted"], result["reason"]
    assert "version 1 was fitted on 400 of the 440 rows" in result["reason"]
    assert selection(champion, 2)["rows"] == 440


def test_only_unseen_rows_are_compared_if_they_are_many(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    logits, labels = rows
    upload(champion, "grown", logits[100:], labels[100:])
    result = run_fit(champion, "grown", "temperature")
    assert "on the 600 of 900 rows that version 1 was not fitted on" in result["reason"]
    chosen = selection(champion, 2)
    assert chosen["rows"] == 600
    before = fit(logits[:_OLD], labels[:_OLD], "vector")
    expected = -np.log(before.predict_float64(logits[_OLD:])[np.arange(600), labels[_OLD:]])
    assert chosen["reference_nll"] == pytest.approx(expected.mean(), rel=1e-6)


def test_champion_is_refitted_to_its_own_rows(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """A data set with some old rows is not the data of the champion, which had more."""
    logits, labels = rows[0][100:440], rows[1][100:440]
    upload(champion, "later", logits, labels)
    run_fit(champion, "later", "temperature")
    positions = np.where(np.arange(_OLD) < 100, -1, np.arange(_OLD) - 100)
    refit = Refit(candidate("vector"), rows[0][:_OLD], rows[1][:_OLD], positions)
    expected = compare_by_cross_validation(candidate("temperature"), refit, logits, labels)
    assert selection(champion, 2)["reference_nll"] == pytest.approx(expected.reference_nll)


def test_fresh_rows_are_compared_with_the_champion_as_it_is(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    upload(champion, "fresh", rows[0][_OLD:], rows[1][_OLD:])
    result = run_fit(champion, "fresh", "temperature")
    assert result["promoted"]
    assert "version 1" not in result["reason"]
    assert selection(champion, 2)["rows"] == 600


def test_rows_of_an_older_registry_are_recognised(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """Digests that were never recorded are computed from the data set, and recorded."""
    with champion.transaction() as tx:
        tx.connection.execute(update(tables.datasets).values(row_digests=None))
    upload(champion, "grown", rows[0][:440], rows[1][:440])
    assert run_fit(champion, "grown", "temperature")["promoted"]
    with champion.reading() as tx:
        recorded = tx.calibrators.row_digests(tx.models.get("m"), 1)
    assert recorded == encode_digests(row_digests(rows[0][:_OLD]))


def replace_rows(registry: Registry, *, digests: bytes | None) -> None:
    """Make the champion a fit to rows of no data set."""
    with registry.transaction() as tx:
        values = {"dataset_id": None, "row_digests": digests}
        tx.connection.execute(update(tables.calibrators).values(values))


def test_champion_of_sampled_logits_is_recognised(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    replace_rows(champion, digests=encode_digests(row_digests(rows[0][:_OLD])))
    upload(champion, "grown", rows[0][:440], rows[1][:440])
    result = run_fit(champion, "grown", "temperature")
    assert result["promoted"]
    assert "version 1 was fitted on 400 of the 440 rows" in result["reason"]


def test_too_few_unseen_rows_decide_nothing(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    """The champion has seen most rows, and others that cannot be read."""
    replace_rows(champion, digests=encode_digests(row_digests(rows[0][:_OLD])))
    upload(champion, "grown", rows[0][10:440], rows[1][10:440])
    result = run_fit(champion, "grown", "temperature")
    assert not result["promoted"]
    assert "temperature cannot be compared with vector" in result["reason"]
    assert "on all but 40 of these 430" in result["reason"]


def test_champion_with_unknown_rows_is_compared_by_its_map(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    replace_rows(champion, digests=None)
    upload(champion, "grown", rows[0][:440], rows[1][:440])
    upload(champion, "small", rows[0][:300], rows[1][:300])
    small = run_fit(champion, "small", "temperature")
    assert not small["promoted"]
    assert "the 400 rows of version 1 are not recorded" in small["reason"]
    grown = run_fit(champion, "grown", "temperature")
    assert grown["promoted"]
    assert "both are fitted to these rows" in grown["reason"]


def test_damaged_data_of_the_champion_does_not_block(
    champion: Registry, rows: tuple[Logits, Labels]
) -> None:
    with champion.reading() as tx:
        digest = tx.datasets.get(tx.models.get("m"), "old").digest
    champion.blobs.remove(digest)
    upload(champion, "grown", rows[0][100:550], rows[1][100:550])
    result = run_fit(champion, "grown", "temperature")
    assert "on the 150 of 450 rows that version 1 was not fitted on" in result["reason"]


def test_publish_keeps_digests(registry: Registry) -> None:
    with registry.transaction() as tx:
        model = tx.models.create("m", None, 2, "test")
    lease = a_lease(registry)
    with registry.transaction() as tx:
        tx.calibrators.publish(lease, model, None, {}, b"", None, "", row_digests=b"12345678")
        assert tx.calibrators.row_digests(model, 1) == b"12345678"
        assert tx.calibrators.row_digests(model, 2) is None


def forest(seed: int, shift: float) -> tuple[Logits, Labels]:
    """Return log-votes of ten trees for two of the classes, and labels of a shifted base rate."""
    rng = np.random.default_rng(seed)
    votes = rng.integers(0, 11, 600)
    logits = np.full((600, _CLASSES), -6.0)
    logits[:, :2] = np.log(np.stack([votes, 10 - votes], axis=1) + 0.5)
    truth = logits + shift * (np.arange(_CLASSES) == 1)
    return logits, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_new_rows_with_equal_scores_are_compared(registry: Registry, shift: float) -> None:
    """Scores of few values repeat: new rows do not count as those of the champion."""
    with registry.transaction() as tx:
        tx.models.create("m", None, _CLASSES, "test")
    upload(registry, "old", *forest(1, 0.0))
    run_fit(registry, "old", "vector", promote=True)
    upload(registry, "new", *forest(2, shift))
    result = run_fit(registry, "new", "vector")
    assert "was fitted on" not in result["reason"]
    assert result["promoted"] == (shift > 0), result["reason"]
