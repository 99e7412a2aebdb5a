"""Programs for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.end_to_end.programs import Programs
from tests.requirements import program_path


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs on separate homes, and ends them after the test."""
    programs = Programs(tmp_path)
    yield programs
    programs.clean_up()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Chromium of the system."""
    program = program_path("chromium", "chromium")
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()
