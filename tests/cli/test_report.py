"""`recalib report`: a page for people, its gist for machines, nothing where input is bad."""

from __future__ import annotations

import pytest

from tests.cli.running import LABELS, LOGITS, Cli
from tests.files.examples import write_npz

_MAPS = ["--maps", "identity,temperature"]


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["val.npz", "test.npz", "-o", "r.pdf"], "output: found r.pdf"),
        (["val.npz", "test.npz", "-o", "no/r.html"], "output: found no/r.html (no folder"),
        (["val.npz", "three.npz", "-o", "r.html"], "test: logits: found 3 classes"),
        (["val.npz", "missing.npz", "-o", "r.html"], "test: data"),
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
