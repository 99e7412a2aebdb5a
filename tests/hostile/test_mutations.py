"""Parsers of changed bytes return a value or raise a clear error.

`make fuzz-parsers` runs longer, with coverage feedback.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.mutations import changed
from tests.hostile.parsers import PARSERS, refusal


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_are_valid(name: str) -> None:
    """Otherwise mutations would only reach the first check."""
    for seed in PARSERS[name].seeds:
        PARSERS[name].read(seed)


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_changed_bytes_are_parsed_or_rejected(name: str, data: Any) -> None:
    """The result is a value or a `RecalibError` with a short message."""
    parser = PARSERS[name]
    content = data.draw(changed(parser.seeds))
    message = refusal(parser.read, content)
    assert message is None or 0 < len(message) < 2000
