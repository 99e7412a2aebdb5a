"""Earlier refits against the same champion are pooled with a new one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from recalib.core.card import Card, DataSummary, FitSummary, Selection
from recalib.fitting.promotion import THRESHOLD, Gain
from recalib.fitting.row_digests import encode_digests
from recalib.registry import Registry
from tests.fitting.conftest import draw
from tests.registry.scenes import a_lease
from tests.training.test_champion_comparison import run_fit, upload
from training.promotion_history import earlier_gains

pytestmark = pytest.mark.sqlite_only

CHAMPION = 1


def card(gain: float, **changes: Any) -> Card:
    selection = Selection(
        folds=20, nll=1.0 - gain, reference="vector", reference_nll=1.0, standard_error=0.01,
        better=False, reason="", rows=100, reference_version=CHAMPION, threshold=THRESHOLD,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "map": "temperature", "objective": "nll", "classes": 3, "library": "0", "created_at": "",
        "data": DataSummary(100), "fit": FitSummary(0.0, 1, True, 1.0), "selection": selection,
    }  # fmt: skip
    return Card(**(fields | changes))


def digests(start: int) -> np.ndarray:
    return np.arange(start, start + 100, dtype=np.uint64)


def publish(registry: Registry, card: Card, rows: np.ndarray | None, alias: str | None = None):
    lease = a_lease(registry)
    stored = None if rows is None else encode_digests(rows)
    with registry.transaction() as tx:
        model = tx.models.get("m")
        tx.calibrators.publish(
            lease, model, None, card.to_dict(), b"", alias, "", row_digests=stored
        )


@pytest.fixture
def champion(registry: Registry) -> Registry:
    """A registry with a champion, version 1."""
    with registry.transaction() as tx:
        tx.models.create("m", None, 3, "test")
    publish(registry, card(0.5), digests(10**6), "champion")
    return registry


def gains(registry: Registry, new: Card | None = None) -> list[float]:
    """Return the gains that are pooled with a new version on rows 0 to 99."""
    with registry.reading() as tx:
        model = tx.models.get("m")
        alias = tx.aliases.get(model, "champion")
        earlier = earlier_gains(
            tx, model, new or card(0), digests(0), alias.version, alias.changed_at
        )
    assert all(gain == Gain(100, gain.mean, 0.01) for gain in earlier)
    return [round(gain.mean, 9) for gain in earlier]


@pytest.mark.both_databases
def test_last_four_comparisons_count_oldest_first(champion: Registry) -> None:
    for i in range(6):
        publish(champion, card(0.01 * i), digests(1000 * (i + 1)))
    assert gains(champion) == [0.02, 0.03, 0.04, 0.05]


def test_other_maps_options_and_champions_do_not_count(champion: Registry) -> None:
    publish(champion, card(0.1, map="vector"), digests(1000))
    publish(champion, card(0.2, options={"a": 1}), digests(2000))
    publish(champion, card(0.3, selection=None), digests(3000))
    for name, value in {"reference_version": 7, "threshold": None, "rows": None}.items():
        fields = {name_: getattr(card(0).selection, name_) for name_ in Selection.__struct_fields__}
        publish(champion, card(0, selection=Selection(**(fields | {name: value}))), digests(4000))
    publish(champion, card(0.4), digests(5000))
    assert gains(champion) == [0.4]


def test_comparisons_on_the_same_rows_count_once(champion: Registry) -> None:
    publish(champion, card(0.1), digests(50))  # half of the new version's rows
    publish(champion, card(0.2), digests(1000))
    publish(champion, card(0.3), digests(1010))
    publish(champion, card(0.4), digests(2000 - 4))
    publish(champion, card(0.5), digests(3000))
    publish(champion, card(0.6), None)
    assert gains(champion) == [0.3, 0.4, 0.5]


def test_rollback_ends_the_history(champion: Registry) -> None:
    publish(champion, card(0.1), digests(1000), "champion")
    with champion.transaction() as tx:
        tx.aliases.set(tx.models.get("m"), "champion", CHAMPION, "test", "rollback")
    assert gains(champion) == []
    publish(champion, card(0.2), digests(2000))
    assert gains(champion) == [0.2]


@pytest.mark.slow
def test_job_pools_refits_and_names_the_thresholds(registry: Registry) -> None:
    """Each refit of 300 rows gains little over the classifier; together they prove it."""
    with registry.transaction() as tx:
        tx.models.create("m", None, 60, "test")
    results = []
    for i in range(3):
        upload(registry, f"d{i}", *draw(300, 60, 1.12, seed=i))
        results.append(run_fit(registry, f"d{i}", "temperature"))
    comparison = results[-1]["comparison"]
    gain = [result["comparison"]["gain"] for result in results]
    assert comparison["threshold"] == THRESHOLD
    assert comparison["pooled"]["refits"] == 3
    assert comparison["pooled"]["rows"] == 900
    assert comparison["pooled"]["gain"] == pytest.approx(np.mean(gain))
    assert results[0]["comparison"]["pooled"] is None
    assert comparison["reference_version"] is None


@pytest.mark.slow
def test_same_map_with_more_rows_takes_over(registry: Registry) -> None:
    with registry.transaction() as tx:
        tx.models.create("m", None, 60, "test")
    upload(registry, "few", *draw(300, 60, 2.0, seed=1))
    upload(registry, "as-few", *draw(300, 60, 2.0, seed=2))
    upload(registry, "many", *draw(1_300, 60, 2.0, seed=3))
    assert run_fit(registry, "few", "temperature")["comparison"]["rule"] == "gain"
    assert not run_fit(registry, "as-few", "temperature")["promoted"]
    result = run_fit(registry, "many", "temperature")
    assert result["promoted"]
    assert result["comparison"]["rule"] == "more rows"
    assert "fitted to 4.33 times the rows" in result["reason"]
    with registry.reading() as tx:
        model = tx.models.get("m")
        assert tx.aliases.get(model, "champion").version == 3
