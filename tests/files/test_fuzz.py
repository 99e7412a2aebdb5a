"""Any sequence of bytes gives data or a clear error."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.errors import InputError
from recalib.files import FORMATS, read
from tests.files.examples import WRITERS, example
from tests.hostile.in_child import call_in_child, read_chunks

LOGITS, LABELS = example()


def _parses_or_refuses(name: str, content: bytes) -> None:
    if name == "parquet":  # pyarrow can end the process that reads a damaged footer
        with suppress(InputError):
            call_in_child(read_chunks, content, format=name)
        return
    try:
        data = read(io.BytesIO(content), format=name, labels="optional")
    except InputError as error:
        assert all((error.field, error.found, error.accepted))  # noqa: PT017
    else:
        assert not np.isnan(data.logits).any()


@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=300))
def test_random_bytes_are_rejected(name: str, content: bytes) -> None:
    _parses_or_refuses(name, content)


_SMALL = [(name, write(LOGITS[:5], LABELS[:5])) for name, write in WRITERS.values()]


@pytest.mark.parametrize(("name", "content"), _SMALL, ids=list(WRITERS))
@given(data=st.data())
def test_changed_bytes_are_read_or_rejected(name: str, content: bytes, data: Any) -> None:
    """Up to four bytes are changed, and a part may be removed."""
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at] = data.draw(st.integers(0, 255))
    start = data.draw(st.integers(0, len(changed)))
    if data.draw(st.booleans()):
        del changed[start : start + data.draw(st.integers(1, 64))]
    _parses_or_refuses(name, bytes(changed))
