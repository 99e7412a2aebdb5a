"""Whatever valid bytes are changed into, a parser answers or says what is wrong with them.

`make fuzz-parsers` goes on for as long as it is let, led by coverage.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.mutations import changed
from tests.hostile.parsers import PARSERS, refusal

#: All of them together are some seconds.
_EXAMPLES = 40


@pytest.mark.parametrize("name", PARSERS)
def test_seeds_are_valid(name: str) -> None:
    """Else mutation would never come past the first check."""
    for seed in PARSERS[name].seeds:
        PARSERS[name].read(seed)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=_EXAMPLES)
@given(data=st.data())
def test_changed_bytes_are_parsed_or_rejected(name: str, data: Any) -> None:
    """A value, or an error of ours that fits on a screen; nothing else comes out."""
    parser = PARSERS[name]
    content = data.draw(changed(parser.seeds))
    message = refusal(parser.read, content)
    assert message is None or 0 < len(message) < 2000
