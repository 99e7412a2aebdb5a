"""Columns of segments of rows, such as a country, a device or a clinic, as texts.

Segments of one column do not overlap; those of several columns do. Groups of dependent rows are
another thing: `recalib.core.group_numbers`.

Legend: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.inputs import as_array
from recalib.errors import InputError

#: A column with more values is an id.
MAX_SEGMENTS = 500
#: The name of values without a name.
UNNAMED = "segment"


def segment_columns(segments: Any, rows: int) -> dict[str, NDArray[np.str_]]:
    """Return the texts (N,) of each column by its name; a text is empty for a null or NaN.

    Parameters
    ----------
    segments: values (N,), texts, integers or booleans; or several such columns, as a dictionary or
        a data frame.

    Raises
    ------
    InputError: other shapes or types, or more than `MAX_SEGMENTS` different values.
    """
    names = segments if isinstance(segments, Mapping) else getattr(segments, "columns", None)
    if names is None:
        return {str(getattr(segments, "name", None) or UNNAMED): _texts(segments, rows)}
    return {str(name): _texts(segments[name], rows) for name in names}


def segment_masks(segments: Any, rows: int) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Return the rows (N,) of each segment by column and value; an empty text is no segment."""
    columns = segment_columns(segments, rows)
    return {
        (name, str(value)): texts == value
        for name, texts in columns.items()
        for value in np.unique(texts[texts != ""])
    }


def _texts(values: Any, rows: int) -> NDArray[np.str_]:
    array = as_array(values, "segments")
    accepted = f"texts, integers or booleans ({rows},), or a dictionary of such columns"
    if array.shape != (rows,) or array.dtype.kind not in "bUiuO":
        found = f"shape {array.shape}, dtype {array.dtype}"
        raise InputError("segments", found=found, accepted=accepted)
    texts = np.array(["" if v is None or v != v else str(v) for v in array.tolist()], np.str_)
    if (count := len(np.unique(texts))) > MAX_SEGMENTS:
        found = f"{count:,} different values, like an id"
        raise InputError("segments", found=found, accepted=f"at most {MAX_SEGMENTS}")
    return texts
