"""The arena: its scores are those of the protocol, its splits are disjoint, its runs continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.arena.__main__ import report
from benchmarks.arena.calibrators import BASE
from benchmarks.arena.pairs import log_probabilities, save, splits
from benchmarks.arena.scores import Losses, losses, ranks, regret, scores, win_rates
from benchmarks.arena.sets import DataSet, family, is_development
from benchmarks.arena.worker import nll, read, run


def _line(pair: str, method: str, nll: float) -> dict[str, Any]:
    return {"pair": pair, "method": method, "nll": nll, "classes": 2, "rows": 200}


def test_win_rate_is_the_share_of_other_methods_with_a_higher_loss() -> None:
    """An equal loss is no win, and a failed fit beats none."""
    rates = win_rates(np.array([[1.0, 2.0, 3.0], [1.0, 1.0, np.inf]]))
    np.testing.assert_array_equal(rates, [[1, 0.5, 0], [0.5, 0.5, 0]])


def test_scores_by_hand() -> None:
    """`TS` removes half of the loss on one pair, and adds a tenth on the other."""
    lines = [
        *(_line(f"{name}__mlp__holdout-0", BASE, 1.0) for name in ("iris", "magic")),
        _line("iris__mlp__holdout-0", "TS", 0.5),
        _line("magic__mlp__holdout-0", "TS", 1.1),
        _line("letter__mlp__holdout-0", "TS", 0.1),
    ]
    table = losses(lines, several=False)
    assert table.pairs == ("iris__mlp__holdout-0", "magic__mlp__holdout-0")  # others lack the base
    score = next(s for s in scores(table, np.random.default_rng(0)) if s.method == "TS")
    assert (score.win_rate, score.harm, score.win_rate_interval) == (0.5, 0.5, (0.0, 1.0))
    assert score.phi_mean == pytest.approx(0.2)
    assert dict(ranks(table)) == {BASE: 1.5, "TS": 1.5}


def test_regret_is_against_one_member_for_all_splits_of_a_classifier() -> None:
    """Each member has the smallest loss of one split; the mean decides."""
    table = Losses(
        ("auto", "beta", "vector"),
        ("iris__mlp__holdout-0", "iris__mlp__holdout-1"),
        np.array([[1.0, 1.0, 2.0], [1.0, 2.0, 0.5]]),
        np.array([200, 200]),
    )
    mean, interval = regret(table, "auto", ("beta", "vector"), np.random.default_rng(0))
    assert mean == pytest.approx(np.log(1.0 / 1.25))
    assert interval == (mean, mean)  # one source of data


def test_sets_of_the_examination_are_left_out() -> None:
    assert [is_development(name) for name in ("abalone19", "Monk-2", "new-thyroid1", "yeast1")] == [
        True,
        True,
        False,
        False,
    ]
    assert {family(name) for name in ("ecoli1", "ecoli-0_vs_1")} == {"ecoli"}


@pytest.mark.parametrize("classes", [2, 3])
def test_splits_are_disjoint_and_have_every_class(classes: int) -> None:
    y = np.arange(1_000) % classes
    y[:900] = 0
    data = DataSet(np.zeros((1_000, 1)), y, ordered=False)
    for name, (train, cal, test) in splits(data, 0):
        assert not set(cal) & set(test)
        assert name.startswith("bagged") or not set(train) & (set(cal) | set(test))
        assert len(cal) >= 150
        assert np.bincount(y[cal], minlength=classes).min() >= 5


def test_log_probabilities_are_clipped_as_in_the_protocol() -> None:
    """P(y = 1) is rounded to float32, and zeros have the smallest normal float32."""
    z = log_probabilities(np.array([[1.0, 0.0], [0.7, 0.3]]))
    assert z[0, 1] == np.log(np.finfo(np.float32).tiny)
    assert z[1, 1] == np.log(np.float64(np.float32(0.3)))
    assert nll(np.exp(z), np.array([1, 0])) == pytest.approx(-(z[0, 1] + z[1, 0]) / 2)


def test_a_run_continues_where_it_was_interrupted(tmp_path: Path) -> None:
    """Results that exist stay, a line that was cut off is repeated."""
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet([1, 1], 300), rng.integers(0, 2, 300)
    pair, results = tmp_path / "coin__none__holdout-0.npz", tmp_path / "ours.jsonl"
    save(pair, p[:200], y[:200], p[200:], y[200:])
    present = {"pair": pair.stem, "method": BASE, "nll": 7.0}
    results.write_text(json.dumps(present) + '\n{"pair": "coi')
    run([pair], results, [BASE, "temperature"])
    first, second = read(results)
    assert first == present
    assert second["method"] == "temperature"
    # Labels are independent of the probabilities, so the fit is nearly uniform.
    assert second["nll"] == pytest.approx(np.log(2), abs=0.02)


def test_report_has_both_tables_and_the_regret_of_auto(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of other pairs and of other methods stay in the file and out of the tables."""
    lines = [
        _line(pair, method, loss) | {"classes": classes}
        for pair, classes in (("iris__mlp__holdout-0", 3), ("magic__mlp__holdout-0", 2))
        for method, loss in ((BASE, 1.0), ("auto", 0.8), ("beta", 0.8), ("vector", 0.1))
    ]
    other = _line("banana__mlp__holdout-0", BASE, 1.0)
    text = "".join(json.dumps(line) + "\n" for line in [*lines, other])
    (tmp_path / "ours.jsonl").write_text(text)
    report(tmp_path, {line["pair"] for line in lines}, [BASE, "auto", "beta"])
    tables = json.loads((tmp_path / "arena.json").read_text())
    assert "two classes: 1 pairs" in capsys.readouterr().out
    for kind in ("two classes", "several classes"):
        assert {row["method"]: row["win_rate"] for row in tables[kind]} == {
            BASE: 0,
            "auto": 0.5,
            "beta": 0.5,
        }
    assert [row["regret"] for row in tables["regret"]] == [0, 0]
