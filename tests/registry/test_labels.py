"""Labels: the first label of a prediction stands, also with concurrent senders."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from recalib.core.prediction_ids import Prediction
from recalib.registry import Model, Registry
from tests.registry.scenes import a_model, a_version, labels_between

_DAY = 86_400.0


def prediction(number: int, *, made_at: float = 1e9, version: int = 1) -> Prediction:
    """Return a prediction that `number` tells apart from others."""
    digest = number.to_bytes(16, "big")
    return Prediction(1, version, made_at + number, 0.75, 0.5, number % 10, digest)


def everything(registry: Registry, model: Model, version: int = 1) -> list[Any]:
    with registry.reading() as tx:
        return labels_between(tx, model, version, 0, 1e11)


def test_label_is_stored_with_its_prediction(registry: Registry) -> None:
    """By model, version and the time of the prediction."""
    model, other = a_model(registry), a_model(registry, "other")
    with registry.transaction() as tx:
        assert tx.labels.add(model, [(prediction(3), 4), (prediction(7, version=2), 7)]) == [
            None,
            None,
        ]
        before = tx.clock()
    (row,) = everything(registry, model)
    assert row[1:10] == (
        1, 1e9 + 3, (3).to_bytes(16, "big"), 0.75, 0.5, 3, 4, False, row.labelled_at
    )  # fmt: skip
    assert abs(row.labelled_at - before) < 60
    assert [label.predicted for label in everything(registry, model, version=2)] == [7]
    assert everything(registry, other) == []
    with registry.reading() as tx:
        assert tx.labels.columns(model, 1, 0, 1e9 + 3).label.tolist() == []
        assert tx.labels.columns(model, 1, 1e9 + 3, 1e9 + 4).label.tolist() == [4]


def test_empty_batch_adds_nothing(registry: Registry) -> None:
    model = a_model(registry)
    with registry.transaction() as tx:
        assert tx.labels.add(model, []) == []


def test_conflicting_label_marks_the_first_as_disputed(registry: Registry) -> None:
    """The same label again changes nothing, not even the time at which it came."""
    model = a_model(registry)

    def add(*labels: int) -> list[int | None]:
        with registry.transaction() as tx:
            return tx.labels.add(model, [(prediction(0), label) for label in labels])

    assert add(5) == [None]
    (first,) = everything(registry, model)
    assert add(5) == [5]
    assert everything(registry, model) == [first]
    assert add(6) == [5]
    (marked,) = everything(registry, model)
    assert (marked.label, marked.disputed, marked.labelled_at) == (5, True, first.labelled_at)
    assert add(5, 7) == [5, 5]
    assert everything(registry, model) == [marked]


def test_batch_is_processed_in_order(registry: Registry) -> None:
    """Two labels for a prediction in one batch have the outcomes of two batches."""
    model = a_model(registry)
    first, second, third = prediction(1), prediction(2), prediction(3)
    with registry.transaction() as tx:
        tx.labels.add(model, [(third, 3)])
        batch = [
            (first, 5),
            (second, 1),
            (first, 5),
            (first, 6),
            (third, 3),
            (third, 4),
            (first, 6),
        ]
        assert tx.labels.add(model, batch) == [None, None, 5, 5, 3, 3, 5]
    stored = {row.predicted: (row.label, row.disputed) for row in everything(registry, model)}
    assert stored == {1: (5, True), 2: (1, False), 3: (3, True)}


_BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), max_size=8), max_size=4
)


@settings(max_examples=60)
@given(_BATCHES)
@pytest.mark.slow
def test_batch_equals_single_labels(
    sqlite_template: Path, batches: list[list[tuple[int, int]]]
) -> None:
    """Against a dictionary."""
    registry = Registry(f"sqlite:///{sqlite_template}", "memory://")
    stands: dict[int, int] = {}
    disputed = set()
    try:
        with registry.transaction() as tx:
            model = tx.models.create("m", None, 3, actor="anna")
            for batch in batches:
                expected = []
                for number, label in batch:
                    expected.append(stands.get(number))
                    if stands.setdefault(number, label) != label:
                        disputed.add(number)
                answers = tx.labels.add(model, [(prediction(n), label) for n, label in batch])
                assert answers == expected
            rows = labels_between(tx, model, 1, 0, 1e11)
            assert {row.predicted: row.label for row in rows} == stands
            assert {row.predicted for row in rows if row.disputed} == disputed
            raise InterruptedError  # so that the template stays as it is
    except InterruptedError:
        registry.close()


@pytest.mark.parametrize("size", [1, 999, 2500])
def test_large_batches_are_stored(registry: Registry, size: int) -> None:
    """More rows than one statement of SQLite's takes; half of them are there already."""
    model = a_model(registry)
    with registry.transaction() as tx:
        tx.labels.add(model, [(prediction(n), n % 3) for n in range(0, size, 2)])
        answers = tx.labels.add(model, [(prediction(n), (n + n // 2 % 2) % 3) for n in range(size)])
    assert answers == [None if n % 2 else n % 3 for n in range(size)]
    rows = everything(registry, model)
    assert len(rows) == size
    assert [row.disputed for row in rows] == [n % 2 == 0 and n // 2 % 2 == 1 for n in range(size)]


_LABELLING = """
import json, sys
from recalib.registry import Registry
from tests.registry.test_labels import prediction
registry = Registry(sys.argv[1], 'memory://')
label, backwards = int(sys.argv[2]), sys.argv[3] == "backwards"
with registry.reading() as tx:
    model = tx.models.get('resnet')
answers = []
print("ready", flush=True)
sys.stdin.readline()
for start in range(0, 600, 100):
    numbers = list(range(start, start + 100))
    with registry.transaction() as tx:
        batch = [(prediction(n), label) for n in (numbers[::-1] if backwards else numbers)]
        stood = tx.labels.add(model, batch)
    answers += stood[::-1] if backwards else stood
print(json.dumps(answers))
"""


@pytest.mark.parametrize("labels", [(1, 1, 1), (1, 2, 3)])
@pytest.mark.slow
def test_concurrent_labels_of_the_same_predictions_are_stored_once(
    registry: Registry, database_url: str, labels: tuple[int, ...]
) -> None:
    """Each label is accepted from exactly one process; the others get its outcome.

    One goes through each batch backwards, so that locks taken in the order of arrival would end
    in a deadlock.
    """
    model = a_model(registry)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _LABELLING, database_url, str(label), direction],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[2],
        )
        for label, direction in zip(labels, ("forwards", "backwards", "forwards"), strict=True)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    outputs = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        outputs.append(process.communicate(timeout=120)[0])
        assert process.returncode == 0
    answers = [json.loads(output) for output in outputs]
    rows = everything(registry, model)
    assert len(rows) == 600
    for number, row in enumerate(rows):
        replies = [answer[number] for answer in answers]
        assert Counter(replies) == {None: 1, row.label: 2}
        assert labels[replies.index(None)] == row.label
        assert row.disputed == (len(set(labels)) > 1)


def test_rows_are_purged_after_their_ids_expire(registry: Registry) -> None:
    """By the time of the prediction, an hour later than needed, in steps of bounded size."""
    model = a_model(registry)
    for _ in range(2):
        a_version(registry, model)
    with registry.transaction() as tx:
        now = tx.clock()
        old, young = now - 10 * _DAY - 3700, now - 10 * _DAY - 3500
        batch = [(prediction(n, made_at=old, version=1 + n % 2), 0) for n in range(50)]
        batch += [(prediction(n, made_at=young, version=1), 0) for n in range(50, 53)]
        # Of one request, and so of one time.
        batch += [
            (Prediction(1, 2, old, 0.5, 0.5, 0, n.to_bytes(16, "big")), 0) for n in range(60, 80)
        ]
        tx.labels.add(model, batch)
    gone = []
    while True:
        with registry.transaction() as tx:
            gone.append(tx.labels.purge(10 * _DAY, max_rows=15))
        if gone[-1] == 0:
            break
    assert sum(gone) == 70
    assert max(gone) <= 15 + 20
    assert [row.predicted_at for row in everything(registry, model)] == [
        young + n for n in range(50, 53)
    ]
    assert everything(registry, model, version=2) == []


def test_cohort_query_uses_the_primary_key(registry: Registry, database_url: str) -> None:
    """However many labels there are of other times and versions."""
    model = a_model(registry)
    with registry.transaction() as tx:
        tx.labels.add(model, [(prediction(n), 0) for n in range(3)])
        statement = (
            "SELECT count(*) FROM labels WHERE model_id = 1 AND version = 1 "
            "AND predicted_at >= 5 AND predicted_at < 6"
        )
        if database_url.startswith("sqlite"):
            plan = str(tx.connection.execute(text(f"EXPLAIN QUERY PLAN {statement}")).all())
            assert "SEARCH labels USING PRIMARY KEY" in plan
        else:
            tx.connection.execute(text("SET LOCAL enable_seqscan = off"))
            plan = str(tx.connection.execute(text(f"EXPLAIN {statement}")).all())
            assert "pk_labels" in plan
