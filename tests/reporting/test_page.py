"""The page of `recalib report`, as a browser without a network shows it."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recalib.files import LabelledData
from recalib.reporting.html_report import Source, create_report
from recalib.reporting.plots.style import BLUE, GAP
from tests.fitting.conftest import draw
from tests.requirements import program_path

pytestmark = pytest.mark.slow

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
    create_report(*files, pairs, title=_HOSTILE).save(path)
    return path


@pytest.fixture(scope="module")
def browser() -> list[str]:
    """Chromium, headless, that can reach nothing; skipped where there is none, but not in CI."""
    return [
        program_path("chromium", "chromium"), "--headless", "--no-sandbox", "--disable-gpu",
        "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000",
        "--window-size=1120,3600", "--enable-logging=stderr",
    ]  # fmt: skip


def dom_of(browser: list[str], page: Path, *options: str) -> str:
    """The document after the browser has drawn it, with an empty console."""
    process = subprocess.run(
        [*browser, *options, f"--user-data-dir={page.parent / 'profile'}", "--dump-dom",
         page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in process.stderr, process.stderr
    return process.stdout


@pytest.mark.slow
def test_browser_shows_every_part(page: Path, browser: list[str]) -> None:
    """Every picture is drawn, every table is filled, and nothing fails on the console."""
    dom = dom_of(browser, page)
    figures = dom.split("<figure")[1:]
    assert len(figures) == 5
    assert [figure.count("<svg") for figure in figures] == [2, 1, 1, 2, 5]
    assert f"<title>{html.escape(_HOSTILE, quote=False)}</title>" in dom
    assert "<title>owned" not in dom
    assert "Calibrated by" in dom
    assert '<tr class="chosen">' in dom


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 720, 900, 990])
def test_page_does_not_scroll_sideways_on_a_phone_or_a_tablet(
    width: int, page: Path, browser: list[str]
) -> None:
    """Neither the page nor a part of it is wider than the window; a frame has its own width."""
    frame = page.with_name(f"phone-{width}.html")
    frame.write_text(
        f"""<body><iframe id="phone" src="{page.name}" style="width:{width}px;height:800px">
        </iframe><script>phone.onload = () => {{
          const root = phone.contentDocument.documentElement;
          const parts = [root, ...root.querySelectorAll("main, main :not(svg, svg *)")];
          document.body.dataset.parts = parts.length;
          document.body.dataset.wide = parts.filter(
            (part) => part.scrollWidth > Math.max(part.clientWidth, 0) && part.clientWidth > 0
          ).map((part) => part.tagName + " " + part.textContent.trim().slice(0, 40)).join("; ");
        }}</script></body>"""
    )
    dom = dom_of(browser, frame, "--allow-file-access-from-files")
    assert int(re.search(r'data-parts="(\d+)"', dom)[1]) > 100
    assert 'data-wide=""' in dom, re.search(r'data-wide="([^"]*)"', dom)[1]


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


def test_page_runs_no_code_and_loads_nothing(page: Path) -> None:
    text = page.read_text()
    policies = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "<script" not in text
    assert not re.search(r"<[^>]*\s(src|href|on\w+)\s*=", re.sub(r"<style>.*?</style>", "", text))


def test_drawings_have_names_of_their_own(page: Path) -> None:
    """Two drawings with a clip of the same name would use the first one's."""
    names = re.findall(r'\sid="([^"]+)"', page.read_text())
    assert len(names) == len(set(names))
    used = set(re.findall(r"url\(#([^)]+)\)", page.read_text()))
    assert used
    assert used <= set(names)


def test_page_says_whether_calibration_helps(page: Path) -> None:
    text = page.read_text()
    parts = (
        r"Calibration helps: NLL falls by 0\.\d{4} \(95% interval 0\.\d{4} to 0\.\d{4}\)",
        r"ECE falls by \d+\.\d\d percentage points \(95% interval [\d.]+ to [\d.]+\)",
        r"accuracy does not change\.",
    )
    assert re.search("; ".join(parts), text)
    assert "What keeping accuracy costs" in text
    assert "With vector in place of temperature, NLL" in text


@pytest.mark.slow
def test_page_without_a_calibrator_draws_each_picture_once() -> None:
    """Too few validation rows: `identity` is recommended, and there is one series."""
    logits, labels = draw(300, 3, 1.0, seed=2)
    few = Source("val", "val", LabelledData(logits[:4], labels[:4]))
    test = Source("test", "test", LabelledData(logits[::-1], labels[::-1]))
    report = create_report(few, test, [("identity", "nll")])
    assert report.comparison.choice.map == "identity"
    assert report.verdict == ""
    figures = report.html.split("<figure")[1:]
    assert [figure.count("<svg") for figure in figures] == [1, 1, 1, 1, 3]
    for figure in (figures[0], figures[1], figures[4]):
        assert f'fill="{GAP}"' in figure, "no gap is drawn"
    assert f'fill="{BLUE}"' in figures[3]


def test_page_stays_small(page: Path) -> None:
    """What is drawn; not a point for each row."""
    assert page.stat().st_size < 600_000
