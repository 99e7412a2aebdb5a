"""No folder has more code than its ceiling, and no fit visits more functions than one."""

from __future__ import annotations

import pytest

from tests.code_lines import CEILINGS, code_lines, folder_lines
from tests.walk import MAX_FUNCTIONS, functions_of, warm_fit


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    source = (
        '"""Module."""\n\n# Comment.\ndef f() -> str:\n    """Text\n    of two lines.\n    """\n'
    )
    assert code_lines(source + '    return """two\nlines"""  # comment\n') == 3


@pytest.mark.parametrize("folder", CEILINGS)
def test_folder_is_below_its_ceiling(folder: str) -> None:
    assert folder_lines(folder) <= CEILINGS[folder]


def test_a_fit_visits_few_functions() -> None:
    visited = functions_of(warm_fit())
    assert sum(map(len, visited.values())) <= MAX_FUNCTIONS, visited
