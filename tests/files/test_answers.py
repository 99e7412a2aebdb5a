"""Files of answers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recalib import files
from recalib.errors import InputError
from recalib.files.answers import check_answer_path, write_answers

_P = np.array([[0.25, 0.75], [1 / 3, 2 / 3]])
_ARRAYS = {
    "probabilities": _P,
    "sets": _P > 0.3,
    "intervals": np.stack([_P / 2, _P], axis=2),
    "accepted": np.array([True, False]),
}


def test_csv_has_a_column_for_each_class(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write_answers(path, ["cat", "dog, wet"], **_ARRAYS)
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    assert names == [
        *("probability_cat", "probability_dog, wet", "set_cat", "set_dog, wet"),
        *("low_cat", "high_cat", "low_dog, wet", "high_dog, wet", "accepted"),
    ]
    assert [float(value) for value in rows[1][:2]] == _P[1].tolist()
    assert rows[0][2:] == ["False", "True", "0.125", "0.25", "0.375", "0.75", "True"]


def test_csv_without_names_of_classes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    write_answers(path, None, probabilities=_P)
    found = files.read(path, input="probabilities", labels="optional")
    np.testing.assert_array_equal(found.logits, _P)


def test_parquet_has_lists(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    write_answers(path, None, **_ARRAYS)
    table = pq.read_table(path)
    for name, array in _ARRAYS.items():
        assert table[name].to_pylist() == array.tolist()


def test_lists_of_other_columns_are_kept(tmp_path: Path) -> None:
    tags = [["a", "b"], ["c", "d"]]
    others = pa.table({"id": ["007", "x"], "tags": tags, "ragged": [["a"], []]})
    write_answers(tmp_path / "out.parquet", None, others, probabilities=_P)
    assert pq.read_table(tmp_path / "out.parquet").select(others.column_names).equals(others)
    write_answers(tmp_path / "out.csv", None, others, probabilities=_P)
    with (tmp_path / "out.csv").open(newline="") as file:
        _, *rows = csv.reader(file)
    assert [row[:3] for row in rows] == [["007", str(tags[0]), "['a']"], ["x", str(tags[1]), "[]"]]


def test_other_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"output: found out.txt; accepted: a name that ends in"):
        check_answer_path(Path("out.txt"))
