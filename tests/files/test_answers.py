"""Files of answers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recalib import files
from recalib.errors import InputError
from recalib.files.answers import check_answer_path, other_columns, write_answers
from recalib.files.base import DataSelection
from recalib.files.read_columns import read_columns

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


def test_members_of_json_lines_are_other_columns(tmp_path: Path) -> None:
    """Also those that the first line has not; samples of lm-evaluation-harness have none."""
    lines = [{"id": "007", "logits": [1.0, 2.0]}, {"logits": [2.0, 1.0], "label": 0, "site": "a"}]
    path = tmp_path / "new.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    others = other_columns(path, "logits", DataSelection(), None)
    assert others.to_pydict() == {"id": ["007", None], "site": [None, "a"]}
    assert read_columns(path, ["site"])["site"].tolist() == [None, "a"]
    sample = {"filtered_resps": [[-1.0, True], [-2.0, False]], "target": 0, "arguments": []}
    path.write_text(json.dumps(sample))
    assert other_columns(path, "logits", DataSelection(), None) is None
    path.write_text('{"id": 1, "logits": [1, 2]}\n{"id": "a", "logits": [1, 2]}\n')
    assert other_columns(path, "logits", DataSelection(), None)["id"].to_pylist() == ["1", '"a"']
    path.write_text(json.dumps({"id": 10**30, "logits": [1, 2]}))
    others = other_columns(path, "logits", DataSelection(), None)
    assert others["id"].to_pylist() == [str(10**30)]


def test_other_names_are_refused() -> None:
    with pytest.raises(InputError, match=r"output: found out.txt; accepted: a name that ends in"):
        check_answer_path(Path("out.txt"))
