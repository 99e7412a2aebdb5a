"""The page of `recalib report`, as a browser without a network shows it."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recalib.files import LabelledData
from recalib.reporting.html_report import Source, write_report
from tests.fitting.conftest import draw

_HOSTILE = "</script><script>document.title='owned'</script>&amp;\"'"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on overconfident logits, with a title that tries to be code."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    files = []
    for name, seed in (("val.npz", 1), (f"{_HOSTILE}.npz", 2)):
        logits, labels = draw(400, 5, 2.5, seed=seed)
        files.append(Source(name, name, LabelledData(logits.astype(np.float32), labels)))
    pairs = [(name, "nll") for name in ("identity", "temperature", "vector")]
    write_report(path, *files, pairs, title=_HOSTILE)
    return path


@pytest.fixture(scope="module")
def browser() -> list[str]:
    """Chromium, headless, that can reach nothing; skipped where there is none, but not in CI."""
    program = shutil.which("chromium")
    if program is None:
        assert "chromium" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip("no chromium (Debian package chromium)")
    return [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000",
        "--window-size=1120,3600", "--enable-logging=stderr",
    ]  # fmt: skip


@pytest.mark.slow
def test_browser_shows_every_part(page: Path, browser: list[str]) -> None:
    """Every picture is drawn, every table is filled, and nothing fails on the console."""
    process = subprocess.run(
        [*browser, f"--user-data-dir={page.parent / 'profile'}", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    dom = process.stdout
    assert "CONSOLE" not in process.stderr, process.stderr
    pictures = dom.count('type="application/json"')
    assert pictures >= 1
    assert f'data-drawn="{pictures}"' in dom
    for number in range(1, pictures + 1):
        drawn = dom.partition(f'id="picture-{number}"')[2].partition("</figure>")[0]
        assert "<svg" in drawn, f"picture {number} is empty"
    assert f"<title>{html.escape(_HOSTILE, quote=False)}</title>" in dom
    assert "<title>owned" not in dom
    assert "Calibrated by" in dom
    assert '<tr class="chosen">' in dom


@pytest.mark.slow
def test_a_screenshot_is_not_blank(page: Path, browser: list[str], tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    command = [*browser, f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={shot}"]
    subprocess.run([*command, page.as_uri()], capture_output=True, timeout=120, check=True)
    pixels = np.asarray(Image.open(shot).convert("RGB")).astype(int)
    blue = (pixels[..., 2] > pixels[..., 0] + 60) & (pixels[..., 2] > 120)
    assert blue.mean() > 0.005, "no bars were drawn"
    wide = (pixels != pixels[0, -1]).any(axis=2)[:, -8:]
    assert not wide.any(), "the page is wider than the window"


def test_page_has_no_external_references(page: Path) -> None:
    text = page.read_text()
    assert "default-src 'none'" in text
    own = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=", own)


def test_page_stays_small(page: Path) -> None:
    """Vega and what is drawn; not a point for each row."""
    assert page.stat().st_size < 2_000_000
