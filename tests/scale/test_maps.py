"""Maps and objectives over several files: the results of one file, for any number of workers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recalib
import recalib.scale
from recalib.core.blas_threads import one_torch_thread
from recalib.core.executors import open_workers
from recalib.core.options import configure
from recalib.errors import InputError
from recalib.files.fragments import list_fragments
from recalib.fitting import fit, log_odds
from recalib.fitting.log_odds import OddsSums, Resolution, top_odds
from recalib.objectives import OBJECTIVES
from recalib.ops import NumpyOps
from recalib.scale import odds, row_sample
from recalib.scale import rows as scale_rows

_ROWS, _CLASSES = 2_000, 4


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, _CLASSES, _ROWS)
    logits = 3 * rng.normal(size=(_ROWS, _CLASSES)) + 2 * np.eye(_CLASSES)[labels]
    logits[::5, 3] = np.where(labels[::5] == 3, logits[::5, 3], -np.inf)
    return logits, labels


@pytest.fixture
def ugly_data() -> tuple[Any, Any]:
    """Ties, a class without labels, masked classes, and a class that is never predicted."""
    rng = np.random.default_rng(5)
    labels = np.minimum(rng.integers(0, 5, 800), 3)
    logits = np.round(2 * rng.normal(size=(800, 5)) + 2 * np.eye(5)[labels])
    logits[:, 2] -= 40
    logits[::3, 4] = -np.inf
    return logits.astype(np.float32), labels


def test_cards_of_files_list_as_many_bounds_as_those_of_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(80, 30)), rng.integers(0, 30, 80)
    for part in range(2):
        np.savez(tmp_path / f"{part}.npz", logits=logits[part::2], labels=labels[part::2])
    of_files = recalib.scale.fit(str(tmp_path), "vector").card.fit.bounds_reached
    assert len(of_files) == len(fit(logits, labels, "vector").card.fit.bounds_reached) == 11
    assert of_files[-1].endswith("more")


@pytest.fixture
def ugly_folder(
    ugly_data: tuple[Any, Any],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Fragments of one row, and one that is much larger."""
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 100)
    folder = tmp_path_factory.mktemp("ugly")
    for part, rows in enumerate(np.split(np.arange(800), [1, 2, 750, 751])):
        np.savez(folder / f"{part}.npz", logits=ugly_data[0][rows], labels=ugly_data[1][rows])
    return folder


@pytest.fixture
def folder(data: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 300)  # fewer than there are rows
    for part, rows in enumerate(np.split(np.arange(_ROWS), [500, 501, 1_200])):
        np.savez(tmp_path / f"{part}.npz", logits=data[0][rows], labels=data[1][rows])
    return tmp_path


def _check(folder: Path, data: tuple[Any, Any], map: str, objective: str, **options: Any) -> None:
    """Compare a fit on several files to one on arrays, and to one by three threads."""
    reference = fit(*data, map, objective, **options)
    fitted, by_threads = (
        recalib.scale.fit(folder, map, objective, cluster=cluster, **options)
        for cluster in (None, "threads:3")
    )
    assert fitted.predict(data[0]) == pytest.approx(reference.predict(data[0]), abs=1e-6)
    single, other = fitted.card.fit, reference.card.fit
    assert single.objective == pytest.approx(other.objective, rel=1e-8)
    assert (single.converged, single.bounds_reached) == (other.converged, other.bounds_reached)
    assert single.settled == pytest.approx(other.settled, rel=1e-6)
    # Those of diagnostics have numbers of a sample.
    one_texts, other_texts = (
        summary.warnings[: len(summary.warnings) - len(summary.diagnostics)]
        for summary in (single, other)
    )
    assert one_texts == other_texts
    assert all(
        np.array_equal(value, by_threads.parameters[name])
        for name, value in fitted.parameters.items()
    )


def test_file_that_changes_during_a_fit_is_named(folder: Path) -> None:
    def rewrite(stage: str, iteration: int, value: float) -> None:
        np.savez(folder / "2.npz", logits=np.eye(_CLASSES), labels=np.arange(_CLASSES))

    with pytest.raises(InputError, match=r"2\.npz, which has changed while it was read"):
        recalib.scale.fit(folder, progress=rewrite)


@pytest.mark.parametrize("map", ["isotonic", "spline", "histogram_binning"])
def test_curves_of_the_top_label(folder: Path, data: tuple[Any, Any], map: str) -> None:
    _check(folder, data, map, "nll")


@pytest.mark.parametrize("map", ["isotonic", "spline", "histogram_binning"])
def test_curves_of_cells_are_close(
    folder: Path, data: tuple[Any, Any], map: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_odds, "OF_TOP_LABEL", Resolution(100, 4096))
    predictions = fit(*data, map).predict(data[0])
    difference = recalib.scale.fit(folder, map).predict(data[0]) - predictions
    # A row within a cell of an edge of histogram binning may be counted in the next bin.
    assert np.abs(difference).mean() < 2e-3


_ONE_VS_REST = {"target": "one_vs_rest"}
_OWN_SOLVERS = pytest.mark.parametrize(
    ("map", "options"),
    [
        ("meta_miscoverage", {}),
        ("meta_accuracy", {"accuracy": 0.6}),
        ("meta_accuracy", {"accuracy": 0.999}),
        ("beta", {}),
        ("isotonic", _ONE_VS_REST),
        ("venn_abers", {}),
        ("histogram_binning", _ONE_VS_REST),
    ],
)


@_OWN_SOLVERS
def test_maps_with_their_own_solvers_on_ugly_data(
    ugly_folder: Path, ugly_data: tuple[Any, Any], map: str, options: dict[str, Any]
) -> None:
    _check(ugly_folder, ugly_data, map, "nll", **options)


@pytest.mark.slow
@_OWN_SOLVERS
def test_maps_with_their_own_solvers(
    folder: Path, data: tuple[Any, Any], map: str, options: dict[str, Any]
) -> None:
    _check(folder, data, map, "nll", **options)


def test_parameters_of_beta_are_those_of_one_file(folder: Path, data: tuple[Any, Any]) -> None:
    """The optimum of each class is unique."""
    reference, fitted = fit(*data, "beta"), recalib.scale.fit(folder, "beta")
    for name, value in reference.parameters.items():
        assert fitted.parameters[name] == pytest.approx(value, rel=1e-8, abs=1e-8), name


@pytest.mark.parametrize("map", ["isotonic", "histogram_binning"])
def test_curves_of_classes_in_cells_and_in_several_passes(
    folder: Path, data: tuple[Any, Any], map: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = recalib.scale.fit(folder, map, **_ONE_VS_REST)
    monkeypatch.setattr(scale_rows, "_MAX_GROUPS", 2 * _ROWS)  # two classes of four in a pass
    monkeypatch.setattr(odds, "_BLOCK", 50 * _CLASSES)
    monkeypatch.setattr(odds, "_MERGED_ODDS", 300)
    in_passes = recalib.scale.fit(folder, map, **_ONE_VS_REST)
    for name, value in exact.parameters.items():
        assert np.array_equal(in_passes.parameters[name], value), name
    monkeypatch.setattr(log_odds, "OF_CLASSES", Resolution(100, 1024))
    in_cells = recalib.scale.fit(folder, map, **_ONE_VS_REST)
    assert np.abs(in_cells.predict(data[0]) - exact.predict(data[0])).mean() < 4e-3


def test_bound_on_miscoverage_holds_in_cells(
    folder: Path, data: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threshold divides no cell, so that it rejects the rows that were counted."""
    monkeypatch.setattr(log_odds, "OF_TOP_LABEL", Resolution(100, 8))
    fitted = recalib.scale.fit(folder, "meta_miscoverage")
    threshold = float(fitted.parameters["threshold"])
    assert threshold * 8 == int(threshold * 8)
    temperature = float(fitted.parameters["ranking_temperature"])
    top, odds, _ = top_odds(data[0], temperature)
    right = odds[top == data[1]]
    exact = fit(*data, "meta_miscoverage").parameters["threshold"]
    assert 0 < (right < threshold).sum() <= (right < exact).sum()


@pytest.mark.slow
def test_soft_binned_error_of_temperature(folder: Path, data: tuple[Any, Any]) -> None:
    _check(folder, data, "temperature", "sb_ece", bin_temperature=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("map", "objective"),
    [
        ("temperature", "classwise_scaled_nll"),
        ("vector", "classwise_scaled_nll"),
        ("temperature", "brier"),
        ("vector", "focal"),
        ("ensemble_temperature", "nll"),
        ("parameterized_temperature", "nll"),
        ("structured_vector", "brier"),
        ("identity", "nll"),
    ],
)
def test_maps_by_gradient(folder: Path, data: tuple[Any, Any], map: str, objective: str) -> None:
    # The sample would choose another strength than all rows.
    options = {"strength": 3.0} if map == "structured_vector" else {}
    _check(folder, data, map, objective, **options)


@pytest.mark.parametrize("objective", [pytest.param("hb_ece", marks=pytest.mark.slow), "ece_grid"])
def test_hard_binned_error_of_temperature(
    folder: Path,
    data: tuple[Any, Any],
    ugly_folder: Path,
    ugly_data: tuple[Any, Any],
    objective: str,
) -> None:
    _check(folder, data, "temperature", objective)
    _check(ugly_folder, ugly_data, "temperature", objective, bins=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("map", "objective"),
    [
        ("class_temperature", "hb_ece"),
        ("class_temperature", "ece_grid"),
        ("ensemble_temperature", "hb_ece"),
    ],
)
def test_coordinate_searches(
    ugly_folder: Path, ugly_data: tuple[Any, Any], map: str, objective: str
) -> None:
    _check(ugly_folder, ugly_data, map, objective)


@pytest.mark.slow
def test_soft_binned_error_by_gradient(folder: Path, data: tuple[Any, Any]) -> None:
    _check(folder, data, "ensemble_temperature", "sb_ece", bin_temperature=0.1, bins=5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("nll", {}),
        ("brier", {}),
        ("classwise_scaled_nll", {}),
        ("sb_ece", {"bin_temperature": 0.05}),
        ("sb_ece", {"order": 1.0}),
        ("sb_ece", {"variant": "label_binned", "bin_temperature": 1e-5}),
        ("hb_ece", {"order": 2.0}),
        ("ece_grid", {}),
    ],
)
def test_objective_is_a_function_of_sums(name: str, options: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    logits, labels = 2 * rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    ops, weights = NumpyOps(), np.ones(50)
    log_p = ops.log_softmax(logits)
    objective = configure(OBJECTIVES, name, options, field="objective")
    parts = [
        objective.sums(ops, log_p[rows], labels[rows], weights[rows])
        for rows in (slice(0, 20), slice(20, 50))
    ]
    sums = tuple(a + b for a, b in zip(*parts, strict=True))
    expected = objective.loss(ops, log_p, labels, weights)
    assert objective.of_sums(ops, sums, 50) == pytest.approx(expected, rel=1e-12)


def test_cells_do_not_depend_on_when_they_are_formed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_odds, "OF_TOP_LABEL", Resolution(300, 4096))
    rng = np.random.default_rng(4)
    odds, hits = 3 * rng.normal(size=1_000), rng.random(1_000) < 0.5
    parts = [OddsSums.of_rows(odds[i : i + 100], hits[i : i + 100]) for i in range(0, 1_000, 100)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    expected = OddsSums.of_rows(odds, hits)
    assert parts[0].cells is None
    assert merged.cells is not None
    for name in ("cells", "rows", "hits"):
        assert np.array_equal(getattr(merged, name), getattr(expected, name))
    assert merged.odds == pytest.approx(expected.odds, rel=1e-12)
    assert (np.diff(merged.odds) > 0).all()


def test_log_odds_of_a_fragment_are_summed_in_parts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sums() -> OddsSums:
        with open_workers() as workers:
            rows = scale_rows.FragmentRows(workers, list_fragments(folder)[:1], "logits")
            rows.survey()
            resolution = log_odds.OF_TOP_LABEL
            return rows._merged_odds(partial(odds.top_label_sums, 1.3, None, resolution))[0]

    expected = sums()
    lengths: list[int] = []
    from_rows = OddsSums.of_rows

    def record(of_rows: Any, hits: Any, resolution: Any, *, weights: Any = None) -> OddsSums:
        lengths.append(len(of_rows))
        return from_rows(of_rows, hits, resolution, weights=weights)

    monkeypatch.setattr(OddsSums, "of_rows", record)
    monkeypatch.setattr(odds, "_BLOCK", 50 * _CLASSES)
    monkeypatch.setattr(odds, "_MERGED_ODDS", 100)
    result = sums()
    assert max(lengths) == 100
    assert sum(lengths) == result.rows.sum()
    for name in ("odds", "rows", "hits"):
        assert np.array_equal(getattr(result, name), getattr(expected, name))


def test_threads_that_overlap_compute_with_one_thread_of_torch() -> None:
    """The last restores the number for threads that start later."""
    both_inside, first_has_ended = threading.Barrier(2, timeout=10), threading.Event()

    def threads_of_torch(task: int) -> list[int]:
        with one_torch_thread():
            both_inside.wait()
            numbers = [torch.get_num_threads()]
            if task:
                first_has_ended.wait(10)
                numbers.append(torch.get_num_threads())
        first_has_ended.set()
        return numbers

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(2) as executor:
            assert list(executor.map(threads_of_torch, [0, 1])) == [[1], [1, 1]]
        with ThreadPoolExecutor(1) as executor:
            assert executor.submit(torch.get_num_threads).result() == 2
    finally:
        torch.set_num_threads(before)
