"""`make docs`: the documentation as a web site that needs neither a server nor a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

_ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the site; each warning of the build is an error."""
    command = re.search(r"\$\(BIN\)/python -m (sphinx .*) site$", _makefile(), re.MULTILINE)
    assert command is not None
    output = tmp_path_factory.mktemp("site")
    arguments = [sys.executable, "-m", *command[1].split(), str(output)]
    built = subprocess.run(arguments, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return output.as_uri()


def _makefile() -> str:
    return (_ROOT / "Makefile").read_text()


@pytest.fixture
def page(chromium: Browser) -> Page:
    return chromium.new_page()


def test_site_is_searched_and_read_from_files(site: str, page: Page) -> None:
    """The search finds the reference of a function; no page asks for more than files."""
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{site}/index.html")
    page.wait_for_url("**/docs/README.html")
    page.goto(f"{site}/search.html?q=reliability_diagram")
    expect(page.get_by_text("Search finished")).to_be_visible()
    page.get_by_role("link", name="recalib.reliability_diagram").first.click()
    expect(page.get_by_role("heading", name="recalib", exact=True)).to_be_visible()
    assert {url.partition(":")[0] for url in requests} == {"file"}


def test_every_public_name_has_a_reference(site: str, page: Page) -> None:
    import recalib
    from recalib.client import Client

    ids = {"recalib.__version__"}
    for name in ("recalib", "recalib.client"):
        page.goto(f"{site}/docs/reference/{name}.html")
        ids |= {*page.eval_on_selector_all("dt[id]", "items => items.map(item => item.id)")}
    assert {f"recalib.{name}" for name in recalib.__all__} <= ids
    methods = {name for name in dir(Client) if not name.startswith("_")}
    assert {f"recalib.client.Client.{name}" for name in methods} <= ids
