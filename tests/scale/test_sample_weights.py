"""Sample weights over several files: the numbers of one file, for any number of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recalib
import recalib.scale
from recalib.errors import InputError
from recalib.fitting.fit import fit
from recalib.fitting.linear_maps import LINEAR_MAPS
from recalib.metrics.evaluate import evaluate
from recalib.scale import row_sample
from tests.cli.conftest import cli
from tests.cli.running import Cli

__all__ = ["cli"]

_ROWS, _CLASSES = 2_000, 4


class Sources(NamedTuple):
    """Rows in memory, and the same rows and weights in files of several formats."""

    logits: Any
    labels: Any
    weights: Any
    data: Path
    weight_files: Path


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Unequal weights, of which some are 0."""
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 300)  # fewer than there are rows
    return _write(tmp_path)


@pytest.fixture
def sources_without_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Rows of class 4 have no weight."""
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 300)
    return _write(tmp_path, absent=4)


def _write(tmp_path: Path, absent: int | None = None) -> Sources:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, _CLASSES, _ROWS)
    labels[::20] = _CLASSES
    logits = 3 * rng.normal(size=(_ROWS, _CLASSES + 1)) + 2 * np.eye(_CLASSES + 1)[labels]
    logits[::5, 3] = np.where(labels[::5] == 3, logits[::5, 3], -np.inf)
    weights = rng.lognormal(3, 1, _ROWS) * (rng.random(_ROWS) < 0.9)
    weights[labels == absent] = 0
    data, weight_files = tmp_path / "data", tmp_path / "weights"
    for folder in (data / "day=1", data / "day=2", weight_files / "day=1", weight_files / "day=2"):
        folder.mkdir(parents=True)
    names = ["day=1/0", "day=1/1", "day=2/2", "day=2/3"]
    for name, rows in zip(names, np.split(np.arange(_ROWS), [500, 501, 1_200]), strict=True):
        if name.endswith("0"):
            table = pa.table({"logits": list(logits[rows]), "labels": labels[rows]})
            pq.write_table(table, data / f"{name}.parquet", row_group_size=70)
        elif name.endswith("3"):
            with pa.OSFile(str(data / f"{name}.arrow"), "wb") as file:
                table = pa.table({"logits": list(logits[rows]), "labels": labels[rows]})
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
        else:
            np.savez(data / f"{name}.npz", logits=logits[rows], labels=labels[rows])
        np.save(weight_files / f"{name}.npy", weights[rows])
    return Sources(logits, labels, weights, data, weight_files)


def _fit(sources: Sources, map: str, objective: str, cluster: str | None, **options: Any) -> Any:
    return recalib.scale.fit(
        sources.data, map, objective, sample_weight=sources.weight_files, cluster=cluster, **options
    )


def _check(sources: Sources, map: str, objective: str = "nll", **options: Any) -> None:
    """Compare a fit on several files to one on arrays, and to one by three threads."""
    reference = fit(
        sources.logits, sources.labels, map, objective, sample_weight=sources.weights, **options
    )
    fitted, by_threads = (
        _fit(sources, map, objective, cluster, **options) for cluster in (None, "threads:3")
    )
    if objective == "nll" and (map in LINEAR_MAPS or map in ("temperature", "beta")):
        for name, value in reference.parameters.items():
            # Each of the two ends within 1e-8 of the optimum.
            assert fitted.parameters[name] == pytest.approx(value, rel=2e-8, abs=2e-8), name
    assert fitted.predict(sources.logits) == pytest.approx(
        reference.predict(sources.logits), abs=1e-6
    )
    one, other = fitted.card.fit, reference.card.fit
    assert one.objective == pytest.approx(other.objective, rel=1e-8)
    assert (one.converged, one.bounds_reached) == (other.converged, other.bounds_reached)
    assert one.settled == pytest.approx(other.settled, rel=1e-6)
    # Those of diagnostics have numbers of a sample.
    one_texts, other_texts = (
        summary.warnings[: len(summary.warnings) - len(summary.diagnostics)]
        for summary in (one, other)
    )
    assert one_texts == other_texts
    for name, value in fitted.parameters.items():
        assert np.array_equal(value, by_threads.parameters[name])
    plain = recalib.scale.fit(sources.data, map, objective, **options)
    assert plain.predict(sources.logits) != pytest.approx(fitted.predict(sources.logits), abs=1e-4)


_SLOW = pytest.mark.slow
#: The sample would choose other strengths than all rows.
_RIDGES = {"diagonal": 0.1, "intercept": 0.1}


@pytest.mark.parametrize(
    ("map", "objective", "options"),
    [
        ("temperature", "nll", {}),
        ("vector", "nll", {}),
        pytest.param("class_temperature", "nll", {}, marks=_SLOW),
        pytest.param("matrix", "nll", {"off_diagonal": 9.0, **_RIDGES}, marks=_SLOW),
        pytest.param("dirichlet", "nll", {"strength": 9.0, **_RIDGES}, marks=_SLOW),
        pytest.param("structured_vector", "nll", {"strength": 3.0}, marks=_SLOW),
        pytest.param("structured_matrix", "nll", {"strength": 3.0}, marks=_SLOW),
        ("temperature", "ece_grid", {}),
        pytest.param("temperature", "hb_ece", {}, marks=_SLOW),
        pytest.param("temperature", "sb_ece", {"bin_temperature": 0.01}, marks=_SLOW),
        pytest.param("class_temperature", "hb_ece", {}, marks=_SLOW),
        pytest.param("class_temperature", "ece_grid", {}, marks=_SLOW),
        ("temperature", "classwise_scaled_nll", {}),
        pytest.param("vector", "classwise_scaled_nll", {}, marks=_SLOW),
        pytest.param("vector", "brier", {}, marks=_SLOW),
        pytest.param("vector", "focal", {}, marks=_SLOW),
        pytest.param("vector", "label_smoothing", {}, marks=_SLOW),
        pytest.param("ensemble_temperature", "nll", {}, marks=_SLOW),
        pytest.param(
            "ensemble_temperature", "sb_ece", {"bin_temperature": 0.1, "bins": 5}, marks=_SLOW
        ),
        ("beta", "nll", {}),
        ("isotonic", "nll", {}),
        ("spline", "nll", {}),
        ("histogram_binning", "nll", {}),
        ("isotonic", "nll", {"target": "one_vs_rest"}),
        pytest.param("histogram_binning", "nll", {"target": "one_vs_rest"}, marks=_SLOW),
        ("meta_miscoverage", "nll", {}),
        pytest.param("meta_accuracy", "nll", {"accuracy": 0.4}, marks=_SLOW),
    ],
)
def test_weighted_fit_has_the_optimum_of_one_file(
    sources: Sources, map: str, objective: str, options: dict[str, Any]
) -> None:
    _check(sources, map, objective, **options)


@pytest.mark.parametrize("map", ["beta", "isotonic", "histogram_binning"])
def test_class_without_weight_is_absent(sources_without_a_class: Sources, map: str) -> None:
    options = {} if map == "beta" else {"target": "one_vs_rest"}
    _check(sources_without_a_class, map, **options)
    warnings = _fit(sources_without_a_class, map, "nll", None, **options).card.fit.warnings
    assert any("1 of 5 classes" in text for text in warnings)


def test_auto_and_small_data_weigh_rows(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", _ROWS)
    reference = fit(sources.logits, sources.labels, "auto", sample_weight=sources.weights)
    fitted = _fit(sources, "auto", "nll", None)
    assert fitted.card.map == reference.card.map
    assert fitted.predict(sources.logits) == pytest.approx(
        reference.predict(sources.logits), abs=1e-6
    )


def test_weighted_metrics_are_those_of_all_rows(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Parquet file that is divided at its row groups has the weights of its rows."""
    monkeypatch.setattr("recalib.files.fragments.MAX_FRAGMENT_BYTES", 4_000)
    one, three = (
        recalib.scale.evaluate(sources.data, sample_weight=sources.weight_files, cluster=cluster)
        for cluster in (None, "threads:3")
    )
    assert one == three
    expected = evaluate(
        sources.labels, logits=sources.logits, sample_weight=sources.weights, level=0.95
    )
    result, bounds = one.finish(0.95), one.error_bounds()
    assert result.keys() == expected.keys()
    for name, estimate in result.items():
        assert abs(estimate.value - expected[name].value) <= bounds[name] + 1e-12, name
    assert one.rows == np.count_nonzero(sources.weights)


def test_counts_are_repeated_rows(sources: Sources) -> None:
    """All metrics; those that sort rows are within their bounds."""
    for path in sources.weight_files.rglob("*.npy"):
        np.save(path, np.rint(np.load(path)))
    files = recalib.scale.evaluate(
        sources.data, sample_weight=sources.weight_files, weight_kind="counts"
    )
    counts = np.rint(sources.weights)
    expected = evaluate(
        sources.labels, logits=sources.logits, sample_weight=counts, weight_kind="counts"
    )
    bounds = files.error_bounds()
    assert files.rows == counts.sum()
    assert {"ece_debiased", "classwise_ce"} < expected.keys()
    for name, estimate in files.finish().items():
        assert abs(estimate.value - expected[name].value) <= bounds[name] + 1e-12, name


def test_card_has_the_weighted_metrics(sources: Sources) -> None:
    reference = fit(sources.logits, sources.labels, sample_weight=sources.weights, measure=True)
    card = _fit(sources, "temperature", "nll", None, measure=True).card
    metrics, errors = card.metrics, (card.calibration_error, reference.card.calibration_error)
    # Bins in files are at quantiles of a sample.
    highs = [error.high for error in errors if error is not None]
    assert highs == [pytest.approx(highs[0], abs=0.02)] * 2
    rows = sources.weights.sum() ** 2 / np.square(sources.weights).sum()
    assert card.confidences is not None
    assert sum(card.confidences.counts) == pytest.approx(rows, abs=8)
    for stage in ("before", "after"):
        for name in ("nll", "ece"):  # the tests measure few metrics in cards
            expected = reference.card.metrics[stage][name].value
            assert metrics[stage][name].value == pytest.approx(expected, rel=1e-9), name


def _names(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.npy"))


def test_wrong_weights_are_named(sources: Sources) -> None:
    """Each is an error that names the file, what it has and what is accepted."""

    def error(weights: Any = sources.weight_files) -> str:
        with pytest.raises(InputError) as caught:
            recalib.scale.evaluate(sources.data, sample_weight=weights)
        return str(caught.value)

    first, second, *_ = _names(sources.weight_files)
    assert error(first) == "weights: found 1 file; accepted: 4, one .npy file for each file of " + (
        "the data"
    )
    assert "weights: found nothing at" in error(sources.weight_files / "nowhere*")
    assert "accepted: 0.npy" in error([*reversed(_names(sources.weight_files))])
    np.save(first, np.ones(499))
    assert "0.parquet: weights: found 499 numbers in" in error()
    np.save(first, np.ones((500, 1)))
    assert "0.parquet: weights: found shape (500, 1) in" in error()
    first.write_bytes(b"no numbers at all")
    assert "0.parquet: weights: found bytes" in error()
    np.save(first, np.where(np.arange(500) == 321, -1.0, 1.0))
    assert "0.parquet: weights[321]: found -1" in error()
    for name in _names(sources.weight_files):
        np.save(name, np.zeros(len(np.load(name)) if name != first else 500))
    assert "weights: found zeros only" in error()
    with pytest.raises(InputError, match="weights: found zeros only"):
        _fit(sources, "temperature", "nll", None)
    last = _names(sources.weight_files)[-1]
    np.save(last, np.ones(801))
    assert "3.arrow: weights: found 801 numbers" in error()
    second.unlink()
    assert "found 3 files" in error()


def test_weights_that_change_during_a_fit_are_named(sources: Sources) -> None:
    def rewrite(stage: str, iteration: int, value: float) -> None:
        name = _names(sources.weight_files)[0]
        np.save(name, np.load(name) + 1)

    with pytest.raises(InputError, match="weights: found files that have changed"):
        recalib.scale.fit(sources.data, sample_weight=sources.weight_files, progress=rewrite)


def test_commands_take_weights_of_several_files(cli: Cli, sources: Sources) -> None:
    weights = ["--weights", str(sources.weight_files)]
    assert cli("fit", sources.data, *weights, "-o", "t.calib").status == 0
    reference = fit(sources.logits, sources.labels, sample_weight=sources.weights)
    fitted = recalib.load(cli.folder / "t.calib")
    assert fitted.parameters["temperature"] == pytest.approx(
        reference.parameters["temperature"], rel=1e-8
    )
    result = cli("evaluate", sources.data, *weights, "--json").json
    expected = evaluate(sources.labels, logits=sources.logits, sample_weight=sources.weights)
    assert result["nll"] == pytest.approx(expected["nll"].value, rel=1e-12)


def test_weights_of_a_comparison_are_repeated_rows(cli: Cli, sources: Sources) -> None:
    """Whole weights give the fits and the metrics of as many equal rows, in files and in memory."""
    rng = np.random.default_rng(8)
    times = rng.integers(0, 4, _ROWS)
    for name in _names(sources.weight_files):
        count = len(np.load(name))
        np.save(name, times[:count].astype(float))
        times = np.roll(times, -count)
    repeated = np.repeat(np.arange(_ROWS), times)
    rows = sources.logits[repeated], sources.labels[repeated]
    pairs = [("temperature", "nll"), ("vector", "nll")]
    expected = recalib.compare(*rows, *rows, maps=["temperature", "vector"])
    in_memory = recalib.compare(
        sources.logits,
        sources.labels,
        sources.logits,
        sources.labels,
        maps=["temperature", "vector"],
        sample_weight=times,
        test_weight=times,
        weight_kind="counts",
    )
    data, files = sources.data, sources.weight_files
    in_files = recalib.scale.compare(
        data, data, pairs, sample_weight=files, test_weight=files, weight_kind="counts"
    )
    for comparison in (in_memory, in_files):
        for entry, other in zip(comparison.entries, expected.entries, strict=True):
            for name, value in other.calibrator.parameters.items():
                assert entry.calibrator.parameters[name] == pytest.approx(value, abs=1e-7)
            for name in ("nll", "brier", "accuracy", "ece"):
                value = other.metrics[name].value
                assert entry.metrics[name].value == pytest.approx(value, abs=1e-7), name
            assert "classwise_ce" not in entry.metrics
    weights = ["--weights", str(files), "--test-weights", str(files), "--maps", "temperature"]
    weights += ["--weight-kind", "counts"]
    result = json.loads(cli("compare", data, data, *weights, "--json").out)
    assert result[0]["metrics"]["nll"] == pytest.approx(expected.entries[0].metrics["nll"].value)
    assert "classwise" not in cli("compare", data, data, *weights).out


def test_wrong_weights_of_a_comparison_are_named(sources: Sources) -> None:
    data, rows = sources.data, (sources.logits, sources.labels)
    first = _names(sources.weight_files)[0]
    for name in ("sample_weight", "test_weight"):
        with pytest.raises(InputError, match="weights: found 1 file"):
            recalib.scale.compare(data, data, [("temperature", "nll")], **{name: first})
    with pytest.raises(InputError, match=r"sample_weight: found shape \(3,\)"):
        recalib.compare(*rows, maps=["temperature"], sample_weight=np.ones(3))
    with pytest.raises(InputError, match=r"test_weight: found shape \(3,\)"):
        recalib.compare(*rows, *rows, maps=["temperature"], test_weight=np.ones(3))
    with pytest.raises(InputError, match="test_weight: found weights; accepted: none without"):
        recalib.compare(*rows, maps=["temperature"], test_weight=np.ones(_ROWS))
