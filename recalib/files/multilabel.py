"""Read data with independent labels: `.npz` with two matrices, or Parquet with two list columns.

- `.npz`: `logits` or `probabilities` (N, K), and `labels` (N, K) of zeros and ones.
- Parquet: columns of the same names with a list of K numbers in each row.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recalib.arrays import Floats
from recalib.errors import InputError, UnsupportedError
from recalib.files.base import Input, translate_errors
from recalib.label_arrays import check_label_matrix, check_label_scores

__all__ = ["MultilabelData", "read_multilabel"]

_SUFFIXES = (".npz", ".parquet")


@dataclass(frozen=True)
class MultilabelData:
    """Checked scores and labels."""

    #: (N, K): log-odds or probabilities, as declared.
    scores: Floats
    #: (N, K), or None without labels.
    labels: NDArray[np.bool_] | None


def read_multilabel(path: Path, *, input: Input, required: bool = True) -> MultilabelData:
    """Return all rows of a file.

    Parameters
    ----------
    input: what the numbers are; never guessed from the values.
    required: whether the labels must be there.

    Raises
    ------
    InputError: the file does not exist or is damaged, or an array is missing or not valid.
    UnsupportedError: another format.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        accepted = f"{' or '.join(_SUFFIXES)} for multilabel data"
        raise UnsupportedError("format", found=f"a name ending in {suffix!r}", accepted=accepted)
    if not path.is_file():
        raise InputError("data", found=f"{path}: no such file", accepted="a readable file")
    with translate_errors(suffix[1:]):
        arrays = _npz(path, input) if suffix == ".npz" else _parquet(path, input)
    if input not in arrays:
        found = f"only {', '.join(arrays)}" if arrays else "no such array"
        raise InputError(input, found=found, accepted=f"an array {input!r} (N, K)")
    scores = check_label_scores(arrays[input], input=input)
    if "labels" not in arrays:
        if required:
            raise InputError("labels", found="none", accepted="an array 'labels' (N, K)")
        return MultilabelData(scores, None)
    return MultilabelData(scores, check_label_matrix(arrays["labels"], shape=scores.shape))


def _npz(path: Path, input: Input) -> Mapping[str, Any]:
    with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as data:
        return {name: data[name] for name in (input, "labels") if name in data.files}


def _parquet(path: Path, input: Input) -> Mapping[str, Any]:
    import pyarrow.parquet

    names = pyarrow.parquet.read_schema(path).names
    table = pyarrow.parquet.read_table(
        path, columns=[name for name in (input, "labels") if name in names]
    )
    return {name: _matrix(table[name], name) for name in table.column_names}


def _matrix(column: Any, field: str) -> NDArray[Any]:
    """Return a column of lists of equal length as an array (N, K)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = column.combine_chunks()
    if not (pa.types.is_list(array.type) or pa.types.is_fixed_size_list(array.type)):
        raise InputError(field, found=f"a column of {array.type}", accepted="lists of K numbers")
    flat = array.flatten()
    if array.null_count or flat.null_count:
        raise InputError(field, found="missing values", accepted="a number for each label")
    rows = len(array)
    if rows == 0:
        raise InputError(field, found="no rows", accepted="at least one row")
    lengths = np.asarray(pc.list_value_length(array))
    if lengths.min() != lengths.max():
        found = f"lists of {lengths.min()} to {lengths.max()} numbers"
        raise InputError(field, found=found, accepted="lists of equal length")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(rows, -1)
