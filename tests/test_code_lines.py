"""No folder has more code than its ceiling."""

from __future__ import annotations

import pytest

from tests.code_lines import CEILINGS, code_lines, folder_lines


def test_blank_lines_comments_and_docstrings_do_not_count() -> None:
    source = (
        '"""Module."""\n\n# Comment.\ndef f() -> str:\n    """Text\n    of two lines.\n    """\n'
    )
    assert code_lines(source + '    return """two\nlines"""  # comment\n') == 3


@pytest.mark.parametrize("folder", CEILINGS)
def test_folder_is_below_its_ceiling(folder: str) -> None:
    assert folder_lines(folder) <= CEILINGS[folder]
