"""Evaluate, fit and apply over several files: the results of one file, in any number of workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recalib
import recalib.scale
from recalib.errors import ConflictError, InputError
from recalib.fitting import fit
from recalib.fitting.linear_maps import LINEAR_MAPS
from recalib.metrics.evaluate import StreamingEvaluation
from recalib.scale import row_sample
from tests.cli.conftest import cli
from tests.cli.running import Cli
from tests.end_to_end.programs import until

__all__ = ["cli"]

_ROWS, _CLASSES = 3_000, 4


def _write(folder: Path, logits: Any, labels: Any) -> None:
    """Write parts of unequal length in several formats and sub-folders."""
    for name in ("day=1", "day=2"):
        (folder / name).mkdir(parents=True)
    cuts = [700, 701, 1_900, 2_400]
    z, y = np.split(logits, cuts), np.split(labels, cuts)
    for index, name in enumerate(("day=1/a", "day=1/b", "day=2/c")):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(z[index].ravel()), _CLASSES)
        table = pa.table({"logits": lists, "labels": y[index]})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=300)
    np.savez(folder / "day=2/d.npz", logits=z[3], labels=y[3])
    header = ",".join([f"logits_{k}" for k in range(_CLASSES)] + ["labels"])
    table = np.column_stack([z[4].astype(np.float64), y[4]])
    formats = ["%.17g"] * _CLASSES + ["%d"]
    np.savetxt(folder / "day=2/e.csv", table, formats, ",", header=header, comments="")


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, _CLASSES, _ROWS)
    logits = rng.normal(size=(_ROWS, _CLASSES)) * [1, 2, 3, 4] + 2 * np.eye(_CLASSES)[labels]
    return logits.astype(np.float32), labels


@pytest.fixture(scope="module")
def folder(data: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    _write(folder, *data)
    return folder


def test_auto_selects_a_map_on_the_sample_and_fits_it_to_all_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 500)
    single, three = (
        recalib.scale.fit(folder, "auto", preserve_accuracy=False, cluster=cluster)
        for cluster in (None, "threads:3")
    )
    choice = single.card.choice
    assert choice is not None
    assert (choice.rows, single.card.data.rows) == (500, _ROWS)
    assert single.card.map == choice.map != "temperature"  # the classes differ
    expected = recalib.scale.fit(folder, choice.map, **single.card.options).parameters
    for name, value in expected.items():
        assert np.array_equal(single.parameters[name], value)
        assert np.array_equal(three.parameters[name], value)


def test_auto_selects_on_all_rows_where_they_fit_in_the_sample(
    folder: Path, data: tuple[Any, Any]
) -> None:
    choices = recalib.scale.fit(folder, "auto").card.choice, recalib.fit(*data, "auto").card.choice
    first, second = (
        [(row.map, row.verdict) for row in choice.candidates] for choice in choices if choice
    )
    assert first == second


@pytest.mark.parametrize(
    ("map", "objective"),
    [("vector", "nll"), ("class_temperature", "brier"), ("class_temperature", "ece_grid")],
)
def test_fit_starts_from_an_earlier_one(
    folder: Path, map: str, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 50)
    cold = recalib.scale.fit(folder, map, objective)
    warm = recalib.scale.fit(folder, map, objective, start=cold)
    assert warm.card.fit.iterations < cold.card.fit.iterations
    for name, value in cold.parameters.items():
        assert warm.parameters[name] == pytest.approx(value, rel=1e-6, abs=1e-8), name


def test_start_of_another_map_is_refused(folder: Path, data: tuple[Any, Any]) -> None:
    start = recalib.fit(*data)
    with pytest.raises(InputError, match=r"start: found temperature \{\} of 4 classes"):
        recalib.scale.fit(folder, "vector", start=start)
    with pytest.raises(InputError, match="start: found map auto; accepted: none: auto"):
        recalib.scale.fit(folder, "auto", start=start)


@pytest.mark.slow
def test_evaluation_is_that_of_one_stream(folder: Path, data: tuple[Any, Any]) -> None:
    expected = StreamingEvaluation(_CLASSES)
    expected.add(data[1], logits=data[0])
    evaluation = recalib.scale.evaluate(folder)
    assert evaluation.rows == _ROWS
    for name, estimate in expected.finish(0.95).items():
        value = evaluation.finish(0.95)[name]
        assert value.value == pytest.approx(estimate.value, rel=1e-6, abs=1e-9), name
    assert evaluation == recalib.scale.evaluate(folder, cluster="threads:3")


@pytest.mark.parametrize("map", ["temperature", *LINEAR_MAPS])
def test_fit_on_several_files_has_the_optimum_of_one(
    folder: Path, data: tuple[Any, Any], map: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 500)  # fewer than there are rows
    reference = fit(*data, map)
    fitted = recalib.scale.fit(folder, map, **reference.card.fit.settled)
    for name, value in reference.parameters.items():
        assert fitted.parameters[name] == pytest.approx(value, rel=1e-8, abs=1e-8), name
    assert fitted.card.fit.objective == pytest.approx(reference.card.fit.objective, rel=1e-12)
    assert fitted.card.data.rows == _ROWS
    assert fitted.card.fit.converged
    histogram = fitted.card.confidences
    assert histogram is not None
    assert sum(histogram.counts) == _ROWS


def test_the_sample_gives_the_strength_of_a_penalty(
    folder: Path, data: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the sample choose; a penalty by row is scaled to the number of all rows."""
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 500)
    by_arrays = recalib.fit(*data, "matrix").card.fit.settled
    by_files = recalib.scale.fit(folder, "matrix").card.fit.settled
    assert by_files.keys() == by_arrays.keys()
    assert all(0.05 < by_files[name] / by_arrays[name] < 20 for name in by_arrays)


@pytest.mark.slow
def test_fit_does_not_depend_on_the_number_of_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 500)
    single, three = (
        recalib.scale.fit(folder, "vector", cluster=cluster).parameters
        for cluster in (None, "threads:3")
    )
    assert all(np.array_equal(single[name], three[name]) for name in single)


def test_masked_classes_and_equal_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 100)
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(600, 4))
    logits[::3, 3] = -np.inf
    labels = rng.integers(0, 3, 600)
    for part, rows in enumerate((slice(0, 250), slice(250, 600))):
        np.savez(tmp_path / f"{part}.npz", logits=logits[rows], labels=labels[rows])
    for map in ("temperature", "vector", "dirichlet"):
        reference = fit(logits, labels, map)
        fitted = recalib.scale.fit(tmp_path, map, **reference.card.fit.settled).predict(logits)
        assert fitted == pytest.approx(reference.predict(logits), abs=1e-6), map
    for part in range(2):
        np.savez(tmp_path / f"{part}.npz", logits=np.ones((300, 4)), labels=labels[:300])
    equal = recalib.scale.fit(tmp_path)
    assert equal.parameters["temperature"] == 1
    assert equal.card.fit.objective == pytest.approx(np.log(4))
    assert "no temperature has any effect" in equal.card.fit.warnings[0]


def test_objective_that_is_no_function_of_sums_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="objective: found sb_ece with these options"):
        recalib.scale.fit(folder, "vector", "sb_ece", variant="label_binned", order=1)


def test_file_of_another_number_of_classes_is_named(folder: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.npz"
    np.savez(odd, logits=np.zeros((2, 3)), labels=[0, 1])
    for function in (recalib.scale.evaluate, recalib.scale.fit):
        with pytest.raises(InputError, match=r"odd\.npz: logits: found 3 classes; accepted: 4"):
            function([folder, odd])


def test_file_without_labels_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2, 3)))
    for function in (recalib.scale.evaluate, recalib.scale.fit):
        with pytest.raises(InputError, match=r"a\.npy: labels: found none"):
            function(tmp_path)


@pytest.fixture
def with_empty_files(folder: Path, tmp_path: Path) -> Path:
    """The files of `folder`, before, between and behind files without rows."""
    copy = tmp_path / "with_empty_files"
    shutil.copytree(folder, copy)
    (copy / "day=0").mkdir()
    # Without rows, pandas writes columns of lists as nulls.
    nulls = pa.table({"logits": pa.nulls(0), "labels": pa.nulls(0)})
    pq.write_table(nulls, copy / "day=0/a.parquet")
    header = (copy / "day=2/e.csv").read_text().partition("\n")[0]
    (copy / "day=1/a2.csv").write_text(header + "\n")
    np.savez(copy / "day=2/f.npz", logits=np.zeros((0, _CLASSES)), labels=np.zeros(0, int))
    return copy


def test_files_without_rows_are_left_out(
    folder: Path, with_empty_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are those of the other files."""
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 500)
    assert recalib.scale.evaluate(with_empty_files) == recalib.scale.evaluate(folder)
    calibrator = recalib.scale.fit(folder)
    assert recalib.scale.fit(with_empty_files).parameters == calibrator.parameters
    output = str(tmp_path / "out")
    for resumed in (0, 5):
        applied = recalib.scale.apply(calibrator, with_empty_files, output)
        assert (applied.rows, applied.parts, applied.resumed) == (_ROWS, 5, resumed)
    assert recalib.scale.evaluate(output, input="probabilities").rows == _ROWS


def test_files_without_any_rows_are_refused(with_empty_files: Path, tmp_path: Path) -> None:
    shutil.rmtree(with_empty_files / "day=2")
    for name in "ab":
        (with_empty_files / f"day=1/{name}.parquet").unlink()
    message = r"data: found no rows in .*a\.parquet and 1 more; accepted: at least one row"
    for function in (recalib.scale.evaluate, recalib.scale.fit):
        with pytest.raises(InputError, match=message):
            function(with_empty_files)
    calibrator = fit(np.eye(3), [0, 1, 2])
    with pytest.raises(InputError, match=message):
        recalib.scale.apply(calibrator, with_empty_files, str(tmp_path / "out"))


def _probabilities(folder: Path) -> Any:
    column = pq.read_table(folder).column("probabilities").combine_chunks()
    return column.values.to_numpy().reshape(-1, _CLASSES)


def test_apply_writes_parts_in_the_order_of_rows(
    folder: Path, data: tuple[Any, Any], tmp_path: Path
) -> None:
    calibrator = recalib.fit(*data, "vector")
    output = tmp_path / "out"
    applied = recalib.scale.apply(calibrator, folder, str(output), cluster="threads:2")
    assert (applied.rows, applied.classes, applied.parts, applied.resumed) == (_ROWS, 4, 5, 0)
    assert _probabilities(output) == pytest.approx(calibrator.predict(data[0]), abs=1e-6)
    assert np.array_equal(pq.read_table(output).column("labels").to_numpy(), data[1])
    manifest = json.loads((output / "_manifest.json").read_text())
    assert sum(part["rows"] for part in manifest["parts"]) == _ROWS
    assert [part["source"] for part in manifest["parts"]] == manifest["fragments"]
    # Its output is data that the other functions read.
    evaluation = recalib.scale.evaluate(output, input="probabilities")
    assert evaluation.finish()["nll"].value == pytest.approx(
        recalib.scale.evaluate(folder, calibrator=calibrator).finish()["nll"].value, rel=1e-6
    )


def test_apply_writes_sets_of_a_calibrator_with_thresholds(
    folder: Path, data: tuple[Any, Any], tmp_path: Path
) -> None:
    calibrator = recalib.fit(*data, "vector", sets="aps", max_risk=0.2)
    recalib.scale.apply(calibrator, folder, tmp_path / "out")
    table = pq.read_table(tmp_path / "out")
    sets = np.array(table.column("sets").combine_chunks().to_pylist())
    np.testing.assert_array_equal(sets, calibrator.predict_set(data[0]))
    accepted = table.column("accepted").to_numpy()
    np.testing.assert_array_equal(accepted, calibrator.is_accepted(data[0]))
    assert 0 < accepted.mean() < 1


def test_stopped_apply_is_resumed(folder: Path, data: tuple[Any, Any], tmp_path: Path) -> None:
    calibrator = recalib.fit(*data)
    output = tmp_path / "out"

    def stop(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recalib.scale.apply(calibrator, folder, str(output), progress=stop)
    parts = {path: path.stat().st_mtime_ns for path in output.glob("part-*.parquet")}
    assert 2 <= len(parts) < 5
    applied = recalib.scale.apply(calibrator, folder, str(output))
    assert applied.resumed == len(parts)
    assert all(path.stat().st_mtime_ns == changed for path, changed in parts.items())
    assert _probabilities(output) == pytest.approx(calibrator.predict(data[0]), abs=1e-6)
    assert not [path for path in output.iterdir() if path.suffix == ".tmp"]
    (output / ".part-00001.parquet.0123456789abcdef.tmp").touch()
    recalib.scale.apply(calibrator, folder, str(output))
    assert not [path for path in output.iterdir() if path.suffix == ".tmp"]
    with pytest.raises(ConflictError, match="parts of another run"):
        recalib.scale.apply(recalib.fit(*data, "vector"), folder, str(output))
    file = next(path for path in folder.rglob("*") if path.is_file())
    os.utime(file, ns=(0, 0))
    with pytest.raises(ConflictError, match="file_versions"):
        recalib.scale.apply(calibrator, folder, str(output))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(ConflictError, match="has files"):
        recalib.scale.apply(calibrator, folder, str(tmp_path / "other"))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_output_in_a_folder_of_the_source_is_refused(
    folder: Path, data: tuple[Any, Any], scheme: str
) -> None:
    """The next reader of the folder would take the parts for data."""
    calibrator = recalib.fit(*data)
    with pytest.raises(InputError, match=r"output: found .*, which is in "):
        recalib.scale.apply(calibrator, folder, f"{scheme}{folder}/out")
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("{folder}/*", "{folder}/out"),
        ("{folder}/**/*", "{folder}/more/out"),
        ("{folder}", "{folder}/../{folder.name}/out"),
        ("{folder}", "link/out"),
        ("link", "{folder}/out"),
        ("link/*", "{folder}/out"),
    ],
)
def test_output_in_the_source_by_a_glob_or_another_path_is_refused(
    folder: Path,
    data: tuple[Any, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    output: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(folder, target_is_directory=True)
    with pytest.raises(InputError, match=r"output: found .*, which is in "):
        recalib.scale.apply(
            recalib.fit(*data), source.format(folder=folder), output.format(folder=folder)
        )
    assert not (folder / "out").exists()


@pytest.mark.parametrize(("pattern", "output"), [("in/*", "in-out"), ("in/*.npz", "in/out")])
def test_output_that_a_glob_does_not_match_is_written(
    data: tuple[Any, Any], tmp_path: Path, pattern: str, output: str
) -> None:
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in" / "a.npz", logits=data[0], labels=data[1])
    result = recalib.scale.apply(recalib.fit(*data), tmp_path / pattern, tmp_path / output)
    assert result.parts > 0


def test_invalid_value_leaves_no_part(tmp_path: Path, data: tuple[Any, Any]) -> None:
    (tmp_path / "in").mkdir()
    np.savez(tmp_path / "in" / "a.npz", logits=np.full((3, 4), np.nan))
    output = tmp_path / "out"
    with pytest.raises(InputError, match=r"a\.npz: logits\[0\]\[0\]: found NaN"):
        recalib.scale.apply(recalib.fit(*data), tmp_path / "in", str(output))
    assert [path.name for path in output.iterdir()] == ["_manifest.json"]


@pytest.mark.slow
def test_commands_take_folders_globs_and_lists(
    cli: Cli, folder: Path, data: tuple[Any, Any]
) -> None:
    assert cli("fit", folder, "-o", "t.calib", "--json").status == 0
    reference = recalib.fit(*data).parameters["temperature"]
    assert recalib.load("t.calib").parameters["temperature"] == pytest.approx(reference, rel=1e-8)
    assert cli("fit", folder, "-o", "u.calib", "--start", "t.calib", "--json").status == 0
    text = cli("fit", folder, "-o", "v.calib", "--map", "auto").out
    assert "on held-out folds" in text
    sources = f"{folder}/day=1/*", f"{folder}/day=2"
    result = cli("evaluate", *sources, "--calibrator", "t.calib", "--json").json
    expected = recalib.scale.evaluate(folder, calibrator=recalib.load("t.calib")).finish()
    assert result["nll"] == pytest.approx(expected["nll"].value)
    answer = cli("apply", "t.calib", folder, "-o", "out", "--cluster", "threads:2", "--json").json
    assert answer == {"output": "out", "rows": _ROWS, "classes": 4, "parts": 5, "resumed": 0}
    for options in (["--diagram", "x.png"], ["--picture", "risk"]):
        done = cli("evaluate", folder, *options)
        assert done.status == 2
        assert "with several files or a cluster; accepted: one file" in done.err


def test_part_that_is_damaged_in_the_middle_is_named(folder: Path, tmp_path: Path) -> None:
    """Parts have checksums of pages, which readers verify."""
    output = tmp_path / "out"
    recalib.scale.apply(recalib.scale.fit(folder), folder, output)
    part = output / "part-00000.parquet"
    content = bytearray(part.read_bytes())
    content[1_000:1_010] = bytes(byte ^ 1 for byte in content[1_000:1_010])
    part.write_bytes(content)
    with pytest.raises(InputError, match=r"part-00000\.parquet: data: found .*checksum"):
        recalib.scale.evaluate(output, input="probabilities")


@pytest.mark.slow
def test_url_of_a_bucket(
    bucket: str, data: tuple[Any, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read from S3, and parts are written to it."""
    import fsspec

    filesystem = fsspec.filesystem("s3")
    filesystem.mkdir(bucket)
    filesystem.put(str(folder), f"{bucket}/in", recursive=True)
    monkeypatch.setattr(row_sample, "_SAMPLE_ROWS", 500)
    calibrator = recalib.scale.fit(f"{bucket}/in/")
    assert calibrator.parameters == recalib.scale.fit(folder).parameters
    evaluation = recalib.scale.evaluate(f"{bucket}/in/**/*.parquet")
    assert evaluation == recalib.scale.evaluate(f"{folder}/**/*.parquet")
    applied = recalib.scale.apply(calibrator, f"{bucket}/in", f"{bucket}/out")
    assert applied.rows == _ROWS
    again = recalib.scale.apply(calibrator, f"{bucket}/in", f"{bucket}/out")
    assert again.resumed == again.parts == 5
    names = {path.rpartition("/")[2] for path in filesystem.ls(f"{bucket}/out")}
    assert names == {"_manifest.json", *(f"part-{k:05d}.parquet" for k in range(5))}
    with pytest.raises(InputError, match="missing"):
        recalib.scale.evaluate("s3://missing/folder/")


@pytest.mark.slow
def test_cluster_with_a_killed_worker_has_the_same_results(
    tmp_path: Path, data: tuple[Any, Any]
) -> None:
    """Two processes of Dask, one killed in the middle of `apply`.

    In a fit: `tests/training/test_large_datasets.py`.
    """
    (tmp_path / "in").mkdir()
    for part in range(40):
        z = np.tile(data[0], (20, 1)) + np.float32(part)
        np.savez(tmp_path / "in" / f"{part:02d}.npz", logits=z, labels=np.tile(data[1], 20))
    recalib.fit(*data, "dirichlet").save(tmp_path / "d.calib")
    command = [sys.executable, "-m", "recalib", "apply", "d.calib", "in", "-o", "out"]
    process = subprocess.Popen(
        [*command, "--cluster", "local:2", "--json"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    until(lambda: list(tmp_path.glob("out/part-*.parquet")) or process.poll(), "a part")
    assert process.poll() is None
    workers = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "spawn_main" in " ".join(child.cmdline())
    ]
    os.kill(workers[0].pid, signal.SIGKILL)
    answer = json.loads(process.communicate(timeout=300)[0])
    assert (answer["rows"], answer["parts"]) == (40 * 20 * _ROWS, 40)
    recalib.scale.apply(recalib.load(tmp_path / "d.calib"), tmp_path / "in", str(tmp_path / "one"))
    for part in range(40):
        name = f"part-{part:05d}.parquet"
        assert pq.read_table(tmp_path / "out" / name).equals(pq.read_table(tmp_path / "one" / name))
