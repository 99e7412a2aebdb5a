"""Tutorials and how-tos that call a server: their examples run, and print what the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.programs import Programs
from tests.pages import assert_same_output, calls_server, run_page, served

pytestmark = pytest.mark.slow
_DOCS = Path(__file__).parents[2] / "docs"
_PAGES = [
    page
    for folder in ("tutorials", "how-to")
    for page in sorted((_DOCS / folder).glob("*.md"))
    if calls_server(page.read_text())
]


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of the administrator of one server for all pages."""
    programs = Programs(tmp_path_factory.mktemp("programs"))
    with served(programs) as variables:
        yield variables
    programs.clean_up()


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: str(page.stem))
def test_examples_run_and_print_what_the_page_shows(
    page: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    """`python -m tests.pages PAGE` writes what they print."""
    assert_same_output(run_page(page, tmp_path, variables), page.read_text())
