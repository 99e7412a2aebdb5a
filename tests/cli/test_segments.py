"""Segments of rows on the command line: `fit`, `apply` and `evaluate`, and what refuses them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import recalib
from tests.cli.running import Cli
from tests.segments.test_segments import draw_rows

NAMES = np.array(["AT", "CH", "DE", "FR", "IT", "PL", "SE", "UK"])
LOGITS, LABELS, SEGMENTS = draw_rows(2000, 0.6, 0)
FIT, NEW = slice(0, 1000), slice(1000, 2000)
COUNTRY = NAMES[SEGMENTS]


def write(folder: Path, name: str, rows: slice) -> Path:
    """Write rows with their country in the format of the name."""
    path = folder / name
    if path.suffix == ".npz":
        np.savez(path, logits=LOGITS[rows], labels=LABELS[rows], country=COUNTRY[rows])
        return path
    frame = pd.DataFrame(LOGITS[rows], columns=[f"logit_{k}" for k in range(3)])
    frame = frame.assign(label=LABELS[rows], country=COUNTRY[rows])
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".arrow":
        frame.to_feather(path, compression="uncompressed")
    else:
        frame.to_parquet(path)
    return path


@pytest.fixture
def calibrator(cli: Cli) -> Path:
    write(cli.folder, "rows.npz", FIT)
    output = cli.folder / "s.calib"
    assert cli("fit", cli.folder / "rows.npz", "-o", output, "--segments", "country").status == 0
    return output


def test_fit_prints_the_rows_and_the_gain_of_each_segment(cli: Cli) -> None:
    rows = write(cli.folder, "rows.csv", FIT)
    result = cli("fit", rows, "-o", cli.folder / "s.calib", "--segments", "country")
    assert result.status == 0
    rows_of_uk = (COUNTRY[FIT] == "UK").sum()
    assert "segment_offsets" not in result.out  # the table has the segments
    assert re.search(rf"country=UK   {rows_of_uk} +-?0\.\d{{5}} ± 0\.\d{{5}}", result.out)
    gain = r"offsets by segment: vector, strength \d+; NLL lower by 0\.\d{5} ± 0\.\d{5} on held-out"
    assert re.search(gain, result.out)


def test_fit_says_if_segments_do_not_help(cli: Cli) -> None:
    np.savez("same.npz", logits=LOGITS[FIT], labels=LABELS[FIT], site=np.repeat("a", 1000))
    result = cli("fit", "same.npz", "-o", "x.calib", "--segments", "site")
    assert "segments do not help (NLL lower by 0.00000 ± 0.00000 on held-out folds)" in result.out
    answer = cli("fit", "same.npz", "-o", "x.calib", "--segments", "site", "--json").json
    assert answer["card"]["segments"]["form"] == "none"


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet", "arrow"])
def test_apply_reads_the_columns_of_the_fit(cli: Cli, calibrator: Path, suffix: str) -> None:
    new, output = write(cli.folder, f"new.{suffix}", NEW), cli.folder / "p.npz"
    by_country = recalib.Calibrator.load(calibrator)
    for option, expected in (
        ((), by_country.predict(LOGITS[NEW], COUNTRY[NEW])),
        (("--common",), by_country.common.predict(LOGITS[NEW])),
    ):
        assert cli("apply", calibrator, new, "-o", output, *option).status == 0
        with np.load(output) as answer:
            np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-12)


def test_integers_beside_a_null_are_the_same_segments_in_csv_and_parquet(cli: Cli) -> None:
    frame = pd.read_csv(write(cli.folder, "rows.csv", FIT))
    frame["site"] = np.where(np.arange(1000) % 9 == 0, np.nan, SEGMENTS[FIT])
    frame.to_csv("rows.csv", index=False)  # writes 0.0, 1.0, ...
    frame.to_parquet("rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        answer = cli("fit", name, "-o", "s.calib", "--segments", "site,site", "--json").json
        segments = answer["card"]["segments"]
        assert segments["columns"] == ["site"]
        assert [part["value"] for part in segments["segments"]] == [str(k) for k in range(8)]
    frame["site"] = np.where(SEGMENTS[FIT] == 0, "1.0", "1.10")  # versions stay texts
    frame.to_csv("rows.csv", index=False)
    answer = cli("fit", "rows.csv", "-o", "s.calib", "--segments", "site", "--json").json
    assert [part["value"] for part in answer["card"]["segments"]["segments"]] == ["1.0", "1.10"]


def test_apply_to_several_files_takes_the_common_map(cli: Cli, calibrator: Path) -> None:
    files = [write(cli.folder, name, NEW) for name in ("a.parquet", "b.parquet")]
    assert cli("apply", calibrator, *files, "-o", cli.folder / "out", "--common").status == 0
    answer = pd.read_parquet(cli.folder / "out")["probabilities"]
    expected = recalib.Calibrator.load(calibrator).common.predict(LOGITS[NEW])
    np.testing.assert_allclose(np.stack(answer)[:1000], expected, atol=1e-6)


def test_evaluate_measures_each_segment(cli: Cli, calibrator: Path) -> None:
    new = write(cli.folder, "new.npz", NEW)
    options = ("evaluate", new, "--calibrator", calibrator, "--segments", "country")
    answer = cli(*options, "--metrics", "ece,accuracy", "--intervals", "--json").json
    p = recalib.Calibrator.load(calibrator).predict(LOGITS[NEW], COUNTRY[NEW])
    assert answer["ece"]["value"] == recalib.evaluate(LABELS[NEW], p)["ece"]
    assert list(answer["segments"]) == [f"country={name}" for name in NAMES]
    at = COUNTRY[NEW] == "DE"
    expected = recalib.evaluate(LABELS[NEW][at], p[at], intervals=True, level=1 - 0.05 / 8)["ece"]
    part = answer["segments"]["country=DE"]
    assert part["rows"] == at.sum()
    assert (part["ece"]["low"], part["ece"]["high"]) == (expected.low, expected.high)
    table = cli("evaluate", new, "--segments", "country").out
    assert "ece by segment; all 8 intervals hold together with 95%" in table


def test_report_has_a_table_of_segments(cli: Cli, calibrator: Path) -> None:
    new, page = write(cli.folder, "new.npz", NEW), cli.folder / "r.html"
    rows = cli.folder / "rows.npz"
    options = ("--maps", "temperature", "--segments", "country")
    assert cli("report", rows, new, "-o", page, *options).status == 0
    table = page.read_text().split('<table id="segments">')[1].split("</table>")[0]
    assert "All 8 intervals of a" in table
    assert re.findall(r"country=(\w+)", table) == [*NAMES]
    p = recalib.Calibrator.load(calibrator).common.predict(LOGITS[NEW])
    at = COUNTRY[NEW] == "FR"
    error = recalib.evaluate(LABELS[NEW][at], p[at], metrics=["ece"])["ece"]
    row = table.split("country=FR")[1].split("</tr>")[0]
    assert f"{error:.2%}"[:-1] in row
    floor = recalib.evaluate(LABELS[NEW][at], p[at], metrics=["ece"], floors=True)["ece"].floor
    assert f"{floor:.2%}"[:-1] in row
    assert "The noise floor is the error of a perfectly calibrated classifier" in table


def test_errors_name_the_option(cli: Cli, calibrator: Path) -> None:
    rows, output = cli.folder / "rows.npz", cli.folder / "x.calib"
    fit = ("fit", rows, "-o", output, "--segments")
    cases = {
        (*fit, "cuntry"): "segments: found no column cuntry; accepted: names among logits, labels",
        (
            *fit,
            "labels",
        ): "segments: found labels, which has one value for each label",
        (*fit, "country", "--sets", "raps"): "segments: found sets raps too; accepted: one of the",
        (
            *fit,
            "country",
            "--map",
            "auto",
            "--predictions",
            "keep_order",
        ): "predictions: found",
        ("fit", rows, rows, "-o", output, "--segments", "country"): "segments: found country, with",
        ("evaluate", rows, "--calibrator", calibrator): "accepted: country, of one file",
        ("apply", calibrator, cli.folder / "val.npz", "-o", "p.npz"): "found no column country",
        ("apply", calibrator, rows, rows, "-o", "p"): "accepted: one file, or --common",
        ("report", rows, rows, "-o", "r.html", "--segments", "x"): "found no column x",
        (
            "report",
            rows,
            rows,
            "-o",
            "r.html",
            "--task",
            "multilabel",
            "--segments",
            "x",
        ): "found x,",
        ("export", calibrator, "-o", cli.folder / "g.onnx"): "calibrator: found one with segments",
    }
    for arguments, message in cases.items():
        result = cli(*arguments)
        assert result.status == 2
        assert message in result.err
