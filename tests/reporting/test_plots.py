"""Reliability diagrams: what is drawn is what was measured, and a file is whole or not there."""

from __future__ import annotations

import importlib
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import recalib.reporting.plots
from recalib.errors import InputError, PackageError
from recalib.metrics import Predictions
from recalib.metrics.ece import ExpectedCalibrationError
from recalib.reporting.plots import check_suffix, reliability_diagram, save
from recalib.stats.sums import Bins

SUFFIXES = [".png", ".svg", ".html", ".json"]
#: A title comes from a file's name, and may hold anything.
HOSTILE = "</script><script>alert('<&>')</script>"


def some_predictions(seed: int = 0, rows: int = 500) -> Predictions:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, 4)) * 3
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Predictions.from_logits(logits, labels)


def saturated(correct: int, rows: int = 3) -> Predictions:
    p = np.zeros((rows, 3))
    p[:, 0] = 1
    return Predictions.from_probabilities(p, (np.arange(rows) >= correct).astype(np.int64))


@pytest.fixture(scope="module")
def chart():
    return reliability_diagram({"before": some_predictions(), HOSTILE: some_predictions(1)})


def drawn_rows(specification: dict) -> list[list[dict]]:
    """The rows of data of each panel, in order; Altair lifts those of a single one to the top."""
    owners = [{**specification, **panel} for panel in specification["hconcat"]]
    return [specification["datasets"][owner["data"]["name"]] for owner in owners]


@pytest.mark.slow
def test_plotted_data_are_sums_of_bins(chart) -> None:
    """Counts, accuracies and confidences are those of `Bins`; their weighted gaps are the ECE."""
    for seed, rows in enumerate(drawn_rows(chart.to_dict())):
        state = Bins(15)
        predictions = some_predictions(seed)
        state.add(predictions.confidences, predictions.correct)
        at = state.filled
        column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        np.testing.assert_array_equal(column["rows"], state.count[at])
        np.testing.assert_allclose(column["accuracy"] * column["rows"], state.correct[at])
        np.testing.assert_allclose(column["confidence"] * column["rows"], state.confidence[at])
        np.testing.assert_allclose(column["from"], np.flatnonzero(at) / 15)
        np.testing.assert_allclose(column["to"], (np.flatnonzero(at) + 1) / 15)
        assert column["share"].sum() == pytest.approx(1)
        assert np.all(column["low"] <= column["accuracy"])
        assert np.all(column["accuracy"] <= column["high"])
        drawn = np.sum(column["share"] * np.abs(column["accuracy"] - column["confidence"]))
        assert drawn == pytest.approx(ExpectedCalibrationError(15).estimate(state).value)


def test_panel_shows_ece_interval_and_rows(chart) -> None:
    ece = ExpectedCalibrationError(15).measure(some_predictions(), 0.95)
    title = chart.to_dict()["hconcat"][0]["title"]
    assert title["text"] == "before"
    subtitle = f"ECE {ece.value:.2%} (95% interval {ece.low:.2%} to {ece.high:.2%})"
    assert title["subtitle"][0] == subtitle
    assert "n = 500" in title["subtitle"]


@pytest.mark.slow
def test_png_has_twice_the_size(chart, tmp_path: Path) -> None:
    save(chart, tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    # Two panels of 300 points and one of 300 + 70, at scale two, and what is around them.
    assert 1300 < width < 2000
    assert 850 < height < 1400


@pytest.mark.slow
def test_svg_is_well_formed_and_shows_the_titles(chart, tmp_path: Path) -> None:
    save(chart, tmp_path / "a.svg")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text())  # noqa: S314
    texts = {
        "".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")
    }
    assert {"before", HOSTILE, "confidence", "accuracy", "perfect calibration"} <= texts
    assert any(text.startswith("ECE ") for text in texts)


@pytest.mark.slow
def test_html_is_the_svg_without_scripts(chart, tmp_path: Path) -> None:
    """A hostile title stays text, and the policy of the page allows no scripts."""
    save(chart, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "default-src 'none'; style-src 'unsafe-inline'\"" in page
    assert HOSTILE not in page
    for text in ("<script", "<link", "@import", "javascript:"):
        assert text not in page
    svg = page[page.index("<svg") : page.index("</body>")]
    texts = {"".join(element.itertext()) for element in ElementTree.fromstring(svg).iter()}  # noqa: S314
    assert HOSTILE in texts


@pytest.mark.slow
def test_json_is_the_specification(chart, tmp_path: Path) -> None:
    save(chart, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(chart.to_json())


def test_suffixes_are_case_insensitive(chart, tmp_path: Path) -> None:
    save(chart, tmp_path / "A.JSON")
    assert (tmp_path / "A.JSON").stat().st_size > 0


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.png.txt", ".png"])
def test_unknown_suffix_is_refused(name: str, chart, tmp_path: Path) -> None:
    for refuse in (check_suffix, lambda path: save(chart, path)):
        with pytest.raises(InputError, match=r"\.png, \.svg, \.html, \.json") as excinfo:
            refuse(tmp_path / name)
        assert excinfo.value.field == "diagram"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_known_suffix_is_accepted(suffix: str) -> None:
    check_suffix(f"a{suffix}")


@pytest.mark.parametrize("suffix", [pytest.param(".svg", marks=pytest.mark.slow), ".json"])
def test_failed_save_leaves_no_file(suffix: str, chart, tmp_path: Path) -> None:
    """A folder in the way of the file, and a folder that does not exist."""
    (tmp_path / f"a{suffix}").mkdir()
    for path in (tmp_path / f"a{suffix}", tmp_path / "missing" / f"a{suffix}"):
        with pytest.raises(InputError, match="output"):
            save(chart, path)
    assert [file.name for file in tmp_path.iterdir()] == [f"a{suffix}"]


def test_failed_rendering_keeps_the_old_file(
    chart, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args, **options) -> bytes:
        raise ValueError("no")

    monkeypatch.setattr("vl_convert.vegalite_to_png", fail)
    (tmp_path / "a.png").write_bytes(b"before")
    with pytest.raises(ValueError, match="no"):
        save(chart, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("correct", [pytest.param((0, 2), marks=pytest.mark.slow), (3,)])
def test_equal_confidences_fill_one_bin(correct: tuple[int], tmp_path: Path) -> None:
    chart = reliability_diagram({f"{count} correct": saturated(count) for count in correct})
    for count, (row,) in zip(correct, drawn_rows(chart.to_dict()), strict=True):
        assert (row["from"], row["to"]) == (pytest.approx(14 / 15), 1)
        assert (row["rows"], row["confidence"]) == (3, 1)
        assert row["accuracy"] == pytest.approx(count / 3)
    save(chart, tmp_path / "a.svg")
    assert "NaN" not in (tmp_path / "a.svg").read_text()


def test_one_bin_is_enough() -> None:
    ((row,),) = drawn_rows(reliability_diagram({"a": some_predictions()}, bins=1).to_dict())
    assert (row["from"], row["to"], row["rows"]) == (0, 1, 500)


@pytest.mark.parametrize("count", [0, 3])
def test_one_or_two_series_are_drawn(count: int) -> None:
    with pytest.raises(InputError, match="one or two"):
        reliability_diagram({str(k): saturated(1) for k in range(count)})


@pytest.mark.parametrize("bins", [0, -1])
def test_no_bins_are_refused(bins: int) -> None:
    with pytest.raises(InputError, match="bins"):
        reliability_diagram({"a": saturated(1)}, bins=bins)


def test_real_logits_show_their_known_error(real_data: Path) -> None:
    """ResNet-110 on CIFAR-10, before temperature scaling: ECE 4.75%, accuracy 93.56%."""
    with np.load(real_data / "resnet110-cifar10-test.npz") as data:
        predictions = Predictions.from_logits(data["logits"], data["labels"].astype(np.int64))
    chart = reliability_diagram({"before": predictions})
    subtitle = chart.to_dict()["hconcat"][0]["title"]["subtitle"]
    assert subtitle[0].startswith("ECE 4.75% ")
    assert subtitle[1].startswith("accuracy 93.56%")
    assert subtitle[2] == "n = 10,000"


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch):
    """They are an extra, which what only serves goes without."""
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(PackageError, match=r"vl_convert; .*'recalib\[pictures\]'"):
        importlib.reload(recalib.reporting.plots)
