"""Large JSON arrays in pieces: the same values and errors as those of the whole array."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.errors import InputError, TooLargeError
from recalib.files.json import array_of
from service.serving import json_pieces
from service.serving.json_pieces import flat_array, fragment, row_array

_VALUE = (
    st.none() | st.floats(-1e30, 1e30) | st.integers(-99, 99) | st.sampled_from(["a]", "[", {}])
)
_ROWS = st.lists(st.lists(_VALUE, max_size=4), max_size=12)
_EVEN_ROWS = st.integers(1, 4).flatmap(
    lambda classes: st.lists(
        st.lists(st.floats(-1e30, 1e30) | st.none(), min_size=classes, max_size=classes),
        min_size=1,
        max_size=30,
    )
)


@pytest.fixture(autouse=True, params=[64, 256])
def _small_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", request.param)
    monkeypatch.setattr(json_pieces, "_PIECE_NUMBERS", request.param)
    monkeypatch.setattr(json_pieces.json_numbers, "LONG", 16)


def _rows(text: str, max_rows: int = 100) -> Any:
    return row_array(text.encode(), "logits", np.float32, max_rows, "rows")


@pytest.mark.parametrize("separators", [(",", ":"), (" , ", ":"), (",\n\t", ":")])
@given(rows=_EVEN_ROWS)
def test_rows_are_those_of_the_whole_array(separators: Any, rows: list[Any]) -> None:
    expected = array_of(rows, "logits", np.float32)
    np.testing.assert_array_equal(_rows(json.dumps(rows, separators=separators)), expected)
    flat = [value for row in rows for value in row]
    text = json.dumps(flat, separators=separators).encode()
    np.testing.assert_array_equal(
        flat_array(text, "data", np.float32, 9_999, "numbers"), expected.reshape(-1)
    )


@given(rows=_ROWS)
def test_no_other_rows_are_accepted(rows: list[Any]) -> None:
    plain = all(type(value) in (int, float, type(None)) for row in rows for value in row)
    even = len({len(row) for row in rows}) == 1
    if plain and even:
        assert _rows(json.dumps(rows)).shape == (len(rows), len(rows[0]))
    else:
        with pytest.raises(InputError):
            _rows(json.dumps(rows))


@pytest.mark.parametrize("value", ['"a"', "true", "[1]", "{}", '"]"', '"[1],[2]"'])
def test_error_names_the_place_in_the_whole_array(value: str) -> None:
    rows = ["[1, 2]"] * 20 + [f"[1, {value}]"] + ["[1, 2]"] * 20
    with pytest.raises(InputError) as error:
        _rows(f"[{', '.join(rows)}]")
    if "]" not in value:
        assert error.value.field == "logits[20][1]"
    flat = ["1.25"] * 20 + [value, "1.25"]
    if value[1:-1] != "[1],[2]":
        with pytest.raises(InputError) as error:
            flat_array(f"[{', '.join(flat)}]".encode(), "data", np.float32, 9_999, "numbers")
        assert error.value.field == "data[20]"


def test_row_of_another_length_is_named() -> None:
    with pytest.raises(InputError) as error:
        _rows("[" + "[1,2]," * 30 + "[1,2,3]," + "[1,2]," * 30 + "[1,2]]")
    assert str(error.value) == "logits[30]: found 3 values; accepted: 2, as in row 0"


def test_rows_over_the_limit_and_endless_values_are_refused() -> None:
    with pytest.raises(TooLargeError, match="over 10 rows"):
        _rows("[" + "[1,2]," * 30 + "[1,2]]", 10)
    with pytest.raises(TooLargeError, match="over 20 numbers"):
        flat_array(b"[" + b"1.5," * 200 + b"1]", "data", np.float32, 20, "numbers")
    with pytest.raises(InputError, match="a value of"):
        flat_array(b"[1," + b"7" * 700 + b"]", "data", np.float32, 9_999, "numbers")


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (40, 3), (3, 200), (500,)])
def test_fragment_is_written_like_the_whole_array(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    option = orjson.OPT_SERIALIZE_NUMPY
    assert orjson.dumps(fragment(array), option=option) == orjson.dumps(array, option=option)
    names = np.array(["a", "b", "c"], object)
    classes = np.abs(array * 10).astype(int) % 3
    written = orjson.dumps(fragment(classes, lambda part: names[part].tolist()), option=option)
    assert json.loads(written) == names[classes].tolist()
