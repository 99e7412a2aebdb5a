"""Compare and report over several files: the results of one file, in any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recalib
import recalib.scale
from recalib.core.executors import Workers, open_workers
from recalib.errors import InputError
from recalib.files.fragments import Fragment
from recalib.fitting import search
from recalib.metrics import Predictions
from recalib.metrics.evaluate import evaluate
from recalib.metrics.paired import paired_changes
from recalib.metrics.streaming_changes import StreamingChanges
from recalib.scale import paired
from tests.cli.conftest import cli
from tests.cli.running import Cli

__all__ = ["cli"]

_PAIRS = [("identity", "nll"), ("temperature", "nll"), ("vector", "nll")]
_SETS = ("validation", "test")
_PICTURES = "recalib.reporting.html_report.page.draw_pictures"


def _rows(seed: int, count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    logits = 2.5 * (rng.normal(size=(count, 3)) + 1.5 * np.eye(3)[labels])
    return logits.astype(np.float32), labels


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Validation and test rows in three files each, beside an empty one, and in one file each."""
    folder = tmp_path_factory.mktemp("compare")
    for seed, name in enumerate(("validation", "test")):
        logits, labels = _rows(seed, 900)
        (folder / name).mkdir()
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
        for part, rows in enumerate(np.split(np.arange(900), [200, 201])):
            np.savez(folder / name / f"{part}.npz", logits=logits[rows], labels=labels[rows])
        np.savez(folder / name / "without-rows.npz", logits=logits[:0], labels=labels[:0])
    return {path.name: path for path in folder.iterdir()}


def _compare(sources: dict[str, Path], **options: Any) -> Any:
    return recalib.scale.compare(
        str(sources["validation"]), sources["test"], _PAIRS, level=0.95, **options
    )


@pytest.mark.slow
def test_comparison_is_that_of_one_file(sources: dict[str, Path]) -> None:
    comparison = _compare(sources)
    reference = recalib.compare(
        *_rows(0, 900),
        *_rows(1, 900),
        maps=["identity", "temperature", "vector"],
        objectives=["nll"],
    )
    assert comparison.choice.map == reference.choice.map
    for entry, expected in zip(comparison.entries, reference.entries, strict=True):
        assert entry.held_out.nll == expected.held_out.nll
        assert entry.metrics["nll"].value == pytest.approx(expected.metrics["nll"].value, rel=1e-6)
    assert [card.fit.objective for card in (comparison.recommended.card,)] == pytest.approx(
        [reference.recommended.card.fit.objective], rel=1e-9
    )
    for cluster in ("threads:2", "threads:3"):
        other = _compare(sources, cluster=cluster)
        assert [entry.metrics for entry in other.entries] == [
            entry.metrics for entry in comparison.entries
        ]


def test_map_with_too_many_parameters_is_left_out(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MAX_PARAMETERS", 5)
    pairs = [("temperature", "nll"), ("vector", "hb_ece")]
    comparison = recalib.scale.compare(sources["validation"], sources["test"], pairs)
    assert len(comparison.entries) == 1
    assert "'hb_ece' for 6 parameters of vector" in comparison.left_out[0]
    with pytest.raises(InputError, match="6 parameters of vector"):
        recalib.scale.compare(sources["validation"], sources["test"], pairs[1:])


def test_file_of_other_classes_is_named(sources: dict[str, Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", logits=np.zeros((5, 2)), labels=np.zeros(5, int))
    for function in (recalib.scale.compare, recalib.scale.report):
        with pytest.raises(InputError, match=r"odd\.npz: logits: found 2 classes; accepted: 3"):
            function(sources["validation"], tmp_path, _PAIRS[:2])


@pytest.mark.slow
def test_streamed_changes_are_those_of_rows() -> None:
    """Values are equal; intervals differ by the random groups."""
    logits, labels = _rows(3, 2_000)
    before = Predictions.from_logits(logits, labels)
    after = Predictions.from_logits(logits / np.float32(1.7), labels)
    metrics = [evaluate(labels, logits=scores, level=0.95) for scores in (logits, after.scores)]
    expected = paired_changes(before, after, *metrics)
    parts = []
    for seed, rows in enumerate(np.split(np.arange(2_000), [1, 700])):
        part = StreamingChanges(3, seed)
        part.add(before.take(rows), after.take(rows))
        parts.append(part)
    result = parts[0].merge(parts[1]).merge(parts[2]).finish(0.95)
    assert (result.rows, result.moved) == (2_000, 0)
    for name in ("nll", "brier", "accuracy", "mean_confidence"):
        change, reference = result.changes[name], expected[name]
        assert change.value == pytest.approx(reference.value, rel=1e-6, abs=1e-12)
        assert change.verdict == reference.verdict
        width = reference.high - reference.low
        assert change.high - change.low == pytest.approx(width, rel=0.6)
    assert StreamingChanges(3).merge(parts[0]).finish(0.95).changes == {}  # one row


@pytest.mark.parametrize("cluster", [None, "threads:3"])
def test_paired_metrics_are_merged_in_the_workers(
    cluster: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks, and the order in which states are merged, do not depend on the workers."""

    class _States:
        def __init__(self, order: str) -> None:
            self.order = order

        def merge(self, other: _States) -> _States:
            return _States(f"({self.order} {other.order})")

        def finish(self, level: float) -> str:
            return self.order

    class _Workers(Workers):
        def map(self, function: Any, items: Any, *, batch: int = 1) -> Any:
            for result in super().map(function, items, batch=batch):
                results.append(result.order)
                yield result

    results: list[str] = []
    monkeypatch.setattr(paired, "_MAX_TASKS", 2)
    monkeypatch.setattr(paired, "StreamingChanges", _States)
    monkeypatch.setattr(paired, "_pair_fragment", lambda kind, pair, task: _States(str(task[0])))
    fragments = [Fragment(f"{part}.npz", "npz") for part in range(5)]
    with open_workers(cluster) as opened:
        workers = _Workers(opened.executor, opened.count)
        order: Any = paired.paired_metrics(workers, fragments, "logits", (None, None))
    assert results == ["((0 1) 2)", "(3 4)"]
    assert order == "(((0 1) 2) (3 4))"


@pytest.mark.slow
def test_report_counts_all_rows(sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from recalib.scale import row_sample

    monkeypatch.setattr(_PICTURES, lambda *_: [])
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 300)
    page = recalib.scale.report(
        sources["validation"],
        sources["test"],
        _PAIRS,
        shifted={"again": sources["validation"]},
        cluster="threads:2",
    )
    assert "evenly spaced rows of 900 test rows.\n  All figures are of all rows" in page.html
    assert page.changes["nll"].verdict == "better"
    assert [(item.name, item.rows) for item in page.shift] == [("test", 900), ("again", 900)]
    logits, labels = _rows(1, 900)
    assert page.before["nll"].value == pytest.approx(evaluate(labels, logits=logits)["nll"].value)
    same = recalib.scale.report(sources["validation"], sources["validation"], _PAIRS)
    assert same.warnings[0].startswith("Both files are the same")
    both = [sources["test"], sources["validation"] / "0.npz"]
    shared = recalib.scale.report(sources["validation"], both, _PAIRS)
    assert shared.warnings[0].startswith("200 of 1,100 test rows are in the validation file")


@pytest.mark.slow
def test_commands_take_folders_and_globs(
    cli: Cli, sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_PICTURES, lambda *_: [])
    maps = ["--maps", "identity,temperature"]
    folders = f"{sources['validation']}/*", sources["test"]
    files = sources["validation.npz"], sources["test.npz"]
    several, single = (cli("compare", *data, *maps, "--json").json for data in (folders, files))
    for row, expected in zip(several, single, strict=True):
        assert row["cross_validated"] == expected["cross_validated"]
        assert row["metrics"]["nll"] == pytest.approx(expected["metrics"]["nll"], rel=1e-6)
    parts = {name: [sources[name] / f"{part}.npz" for part in range(3)] for name in _SETS}
    data = [parts[name][0] for name in _SETS]
    data += [word for name in _SETS for part in parts[name][1:] for word in (f"--add-{name}", part)]
    for row, expected in zip(cli("compare", *data, *maps, "--json").json, several, strict=True):
        assert row["metrics"] == expected["metrics"]
    text = cli("compare", *data, *maps).out
    assert "fitted on 0.npz and 2 more, measured on 0.npz and 2 more" in text
    assert cli("report", *data, "-o", "parts.html", *maps).status == 0
    command = f"recalib fit {' '.join(map(str, parts['validation']))} --map temperature"
    assert command in (cli.folder / "parts.html").read_text()
    answer = cli("report", *files, "-o", "r.html", *maps, "--cluster", "threads:2", "--json").json
    assert answer["recommended"]["map"] == "temperature"
    assert answer["changes"]["nll"]["verdict"] == "better"
