"""Arrays in .npy bodies; parsed headers are cached."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.lib import format as npy

from recalib.errors import InputError
from service.predict.request_formats import decode_npy

_ROWS = np.arange(12).reshape(3, 4)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "<i4", "<u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_decode_npy_agrees_with_numpy(version: tuple[int, int], dtype: str, order) -> None:
    """The first time, and again with other numbers after the same header."""
    for array in (_ROWS, _ROWS + 1):
        file = io.BytesIO()
        npy.write_array(file, np.asarray(array, dtype, order=order), version)
        decoded = decode_npy(file.getvalue(), "logits")
        assert np.array_equal(decoded, array)
        assert decoded.dtype == np.dtype(dtype).newbyteorder("=")


def test_truncated_npy_is_rejected_each_time() -> None:
    file = io.BytesIO()
    npy.write_array(file, _ROWS.astype(np.float32))
    content = file.getvalue()
    for cut in (0, 5, 7, 9, 40, 127, 128, len(content) - 1):
        for _ in range(2):
            with pytest.raises(InputError, match="body"):
                decode_npy(content[:cut], "logits")
    with pytest.raises(InputError, match="49 bytes of data"):
        decode_npy(content + b"\0", "logits")
