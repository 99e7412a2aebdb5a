"""`recalib report`: a page for people, its gist for machines, nothing where input is bad."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npz

_MAPS = ["--maps", "identity,temperature"]
_FILES = ["val.npz", "test.npz", "-o", "r.html"]


@pytest.fixture
def both(cli: Cli) -> Cli:
    cli.write("test.npz", write_npz(LOGITS[:200], LABELS[:200]))
    return cli


def test_a_page_and_its_gist(both: Cli) -> None:
    done = both("report", "val.npz", "test.npz", "-o", "r.html", *_MAPS, "--json").json
    assert done["output"] == "r.html"
    assert done["recommended"]["reason"].startswith(done["recommended"]["map"])
    assert any("test rows are in the validation file" in text for text in done["warnings"])
    assert done["metrics"]["after"]["nll"]["value"] < done["metrics"]["before"]["nll"]["value"]
    page = (both.folder / "r.html").read_text()
    assert "val.npz" in page
    assert "Calibration report" in page
    assert done["recommended"]["map"] in page


def test_for_people(both: Cli) -> None:
    done = both("report", "val.npz", "val.npz", "-o", "r.html", *_MAPS, "--title", "Ours")
    assert done.status == 0
    assert "warning: Both files are the same" in done.err
    assert done.out.endswith("saved r.html\n")
    assert "recommended: " in done.out
    assert "<title>Ours</title>" in (both.folder / "r.html").read_text()


def test_shifted_test_sets_are_shown_in_order(both: Cli) -> None:
    """Measured as `evaluate` measures them, with the recommended calibrator and without."""
    noise = np.random.default_rng(0).normal(0, 6, LOGITS.shape)
    both.write("fog.npz", write_npz(LOGITS + noise, LABELS))
    done = both(
        "report", "val.npz", "test.npz", "-o", "r.html", *_MAPS, "--json",
        "--shift", "thick <fog>=fog.npz", "--shift", "none=test.npz",
    ).json  # fmt: skip
    shift = done["shift"]
    assert [one["name"] for one in shift] == ["test", "thick <fog>", "none"]
    assert [one["rows"] for one in shift] == [200, 300, 200]
    assert shift[2]["before"] == shift[0]["before"]
    for name in ("ece", "nll"):
        for when in ("before", "after"):
            assert shift[0][when][name] == done["metrics"][when][name]
    fog = both("evaluate", "fog.npz", "--json", "--intervals").json
    assert shift[1]["before"]["ece"]["value"] == fog["ece"]["value"] > 0.2
    page = (both.folder / "r.html").read_text()
    assert "thick &lt;fog&gt;" in page
    assert "<td>fog.npz</td>" in page
    assert "Calibration under shift" in page
    assert '"thick \\u003cfog>' in page.replace('\\"', '"')


def test_without_shifted_sets_nothing_is_said_of_shift(both: Cli) -> None:
    assert (
        both("report", "val.npz", "test.npz", "-o", "r.html", *_MAPS, "--json").json["shift"] == []
    )
    assert 'id="shift"' not in (both.folder / "r.html").read_text()


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
def test_bad_input_writes_nothing(both: Cli, arguments: list[str], says: str) -> None:
    both.write("three.npz", write_npz(LOGITS[:, :3], LABELS % 3))
    before = set(both.files())
    done = both("report", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"error: {says}")
    assert done.err.count("\n") == 1
    assert set(both.files()) == before
