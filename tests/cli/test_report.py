"""`recalib report`: HTML page, JSON summary, and invalid input."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npz

_MAPS = ["--maps", "identity,temperature"]
_PICTURES = "recalib.reporting.html_report.page.draw_pictures"
_OTHER_PICTURES = "recalib.reporting.html_report.pictures._pictures"
_FILES = ["val.npz", "test.npz", "-o", "r.html"]


@pytest.fixture
def report_cli(cli: Cli) -> Cli:
    cli.write("test.npz", write_npz(LOGITS[:200], LABELS[:200]))
    return cli


@pytest.mark.slow
def test_json_output_summarises_the_page(report_cli: Cli) -> None:
    output = report_cli("report", "val.npz", "test.npz", "-o", "r.html", *_MAPS, "--json").json
    assert output["output"] == "r.html"
    assert output["recommended"]["reason"].startswith(output["recommended"]["map"])
    assert any("test rows are in the validation file" in text for text in output["warnings"])
    assert output["metrics"]["after"]["nll"]["value"] < output["metrics"]["before"]["nll"]["value"]
    page = (report_cli.folder / "r.html").read_text()
    assert "val.npz" in page
    assert "Calibration report" in page
    assert output["recommended"]["map"] in page
    change = output["changes"]["nll"]
    assert change["low"] <= change["value"] <= change["high"] < 0
    assert change["verdict"] == "better"
    assert output["shift"] == []
    assert 'id="shift"' not in page
    after = output["metrics"]["after"]
    for text in (
        f"→ {after['classwise_ce']['value']:.2%}</b>",
        f"plug-in classwise_ece: {after['classwise_ece']['value']:.2%}, noise floor"
        f" {after['classwise_ece']['floor']:.2%}",
    ):
        assert text in page


def test_text_output_and_title(report_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_PICTURES, lambda *_: [])  # which the other tests draw
    result = report_cli("report", "val.npz", "val.npz", "-o", "r.html", *_MAPS, "--title", "Ours")
    assert result.status == 0
    assert "warning: Both files are the same" in result.err
    assert result.out.endswith("saved r.html\n")
    assert "recommended: " in result.out
    assert "Calibration helps: NLL falls by " in result.out
    assert "<title>Ours</title>" in (report_cli.folder / "r.html").read_text()


@pytest.mark.slow
def test_shifted_test_sets_are_shown_in_order(
    report_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured as `evaluate` measures them, with the recommended calibrator and without."""
    monkeypatch.setattr(_OTHER_PICTURES, lambda *_: [])  # other than that of the shift
    noise = np.random.default_rng(0).normal(0, 6, LOGITS.shape)
    report_cli.write("fog.npz", write_npz(LOGITS + noise, LABELS))
    output = report_cli(
        "report", "val.npz", "test.npz", "-o", "r.html", *_MAPS, "--json",
        "--shift", "thick <fog>=fog.npz", "--shift", "none=test.npz",
    ).json  # fmt: skip
    shift = output["shift"]
    assert [dataset["name"] for dataset in shift] == ["test", "thick <fog>", "none"]
    assert [dataset["rows"] for dataset in shift] == [200, 300, 200]
    assert shift[2]["before"] == shift[0]["before"]
    for name in ("ece", "nll"):
        for when in ("before", "after"):
            assert shift[0][when][name] == output["metrics"][when][name]
    fog = report_cli("evaluate", "fog.npz", "--json", "--intervals").json
    assert shift[1]["before"]["ece"]["value"] == fog["ece"]["value"] > 0.2
    page = (report_cli.folder / "r.html").read_text()
    assert "thick &lt;fog&gt;" in page
    assert "<span>fog.npz</span>" in page
    assert "When the data shift" in page
    assert page.count("thick &lt;fog&gt;</text>") == 2, "one drawing for each width"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["val.npz", "test.npz", "-o", "r.pdf"], "output: found r.pdf"),
        (["val.npz", "test.npz", "-o", "no/r.html"], "output: found no/r.html (no folder"),
        (["val.npz", "three.npz", "-o", "r.html"], "test: logits: found 3 classes"),
        (["val.npz", "missing.npz", "-o", "r.html"], "test: data"),
        ([*_FILES, "--shift", "fog"], "shift: found 'fog'; accepted: NAME=FILE"),
        ([*_FILES, "--shift", "=val.npz"], "shift: found '=val.npz'"),
        ([*_FILES, "--shift", "test=val.npz"], "shift: found 'test'; accepted: names that differ"),
        ([*_FILES, "--shift", "a=val.npz", "--shift", "a=val.npz"], "shift: found 'a'"),
        ([*_FILES, "--shift", "fog=missing.npz"], "shift fog: data"),
        ([*_FILES, "--shift", "fog=three.npz"], "shift fog: logits: found 3 classes; accepted: 4"),
        ([*_FILES, *(f"--shift={k}=val.npz" for k in range(21))], "shift: found 21 files"),
        (["val.npz", "test.npz", "-o", "r.html", "--maps", "magic"], "maps: found 'magic'"),
    ],
)
def test_bad_input_writes_nothing(report_cli: Cli, arguments: list[str], says: str) -> None:
    report_cli.write("three.npz", write_npz(LOGITS[:, :3], LABELS % 3))
    before = set(report_cli.files())
    result = report_cli("report", *arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"error: {says}")
    assert result.err.count("\n") == 1
    assert set(report_cli.files()) == before
