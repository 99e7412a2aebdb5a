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

from recalib.core.inputs import as_array, is_missing
from recalib.errors import InputError

#: A column with more values is an id.
MAX_SEGMENTS = 500
#: The name of values without a name.
UNNAMED = "segment"
_LISTS = {list, tuple, dict, np.ndarray}


def segment_columns(segments: Any, rows: int) -> dict[str, NDArray[np.str_]]:
    """Return the texts (N,) of each column by its name; a text is empty for a null or NaN.

    Parameters
    ----------
    segments: values (N,), texts, integers or booleans; or several such columns, as a dictionary or
        a data frame. Whole numbers in floats are integers, as pandas stores them beside a NaN.

    Raises
    ------
    InputError: other shapes or types, or more than `MAX_SEGMENTS` different values.
    """
    names = getattr(segments, "column_names", None)  # Arrow, whose `columns` are arrays
    names = getattr(segments, "columns", None) if names is None else names
    names = segments if isinstance(segments, Mapping) else names
    if names is None:
        return {str(getattr(segments, "name", None) or UNNAMED): _texts(segments, rows)}
    return {str(name): _texts(segments[name], rows) for name in names}


def segment_masks(
    segments: Any, rows: int, weights: NDArray[np.float64] | None = None
) -> dict[tuple[str, str], NDArray[np.bool_]]:
    """Return the rows (N,) of each segment by column and value; an empty text is no segment.

    Nor is a value that only rows without weight have.
    """
    columns = segment_columns(segments, rows)
    masks = {
        (name, str(value)): texts == value
        for name, texts in columns.items()
        for value in np.unique(texts[texts != ""])
    }
    if weights is None:
        return masks
    return {name: mask for name, mask in masks.items() if weights[mask].any()}


def _texts(values: Any, rows: int) -> NDArray[np.str_]:
    if isinstance(values, list | tuple):
        values = np.array(values, dtype=object)  # else NaN among texts becomes a text
    array = as_array(values, "segments")
    items = array.tolist()
    found = f"shape {array.shape}, dtype {array.dtype}"
    is_valid = array.shape == (rows,) and array.dtype.kind in "bUiufO"
    if is_valid and (lists := {type(item) for item in items} & _LISTS):
        found, is_valid = f"values of the type {lists.pop().__name__}", False
    if is_valid and array.dtype.kind == "f":
        is_valid = not (np.isinf(array) | (array % 1 > 0)).any()
    if not is_valid:
        accepted = f"texts, integers or booleans ({rows},), or a dictionary of such columns"
        raise InputError("segments", found=found, accepted=accepted)
    texts = np.array([_text(item) for item in items], np.str_)
    if (count := len(np.unique(texts))) > MAX_SEGMENTS:
        found = f"{count:,} different values, like an id"
        raise InputError("segments", found=found, accepted=f"at most {MAX_SEGMENTS}")
    return texts


def _text(value: Any) -> str:
    """Return a value as a text, "" for a null; 1.0 is 1, because a NaN makes integers floats."""
    if is_missing(value):
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
