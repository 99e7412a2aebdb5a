"""Prediction ids round-trip and cannot be forged or changed."""

from __future__ import annotations

import base64
import hashlib
import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recalib.core.group_numbers import group_number
from recalib.core.prediction_ids import (
    ID_LENGTH,
    BatchSummary,
    Prediction,
    Refusal,
    SigningKey,
    mint,
    read_ids,
    summarise_predictions,
)

KEY = SigningKey(3, bytes(range(32)))
NOW = 1_800_000_000.25
_MONTH = 30 * 86_400.0
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def predictions(rows: int) -> BatchSummary:
    steps = [row / 64 for row in range(rows)]
    return BatchSummary(steps, [1 - step for step in steps], list(range(rows)))


def minted(rows: int = 1, model: int = 7, version: int = 2, at: float = NOW) -> list[str]:
    return mint(KEY, model, version, at, predictions(rows))


def read(
    id: str, *, keys: tuple[SigningKey, ...] = (KEY,), model: int = 7, now: float = NOW
) -> Prediction | Refusal:
    known = {key.number: key for key in keys}
    (result,) = read_ids([id], known, model=model, now=now, lifetime_seconds=_MONTH)
    return result


def refused(id: str, **more: object) -> str:
    result = read(id, **more)  # type: ignore[arg-type]
    assert isinstance(result, Refusal)
    assert result.status == "invalid"
    return result.reason


def test_id_round_trip() -> None:
    """Confidences are float32, times have microseconds."""
    ids = minted(5)
    results = read_ids(ids, {3: KEY}, model=7, now=NOW, lifetime_seconds=1)
    minted_from = predictions(5)
    for row, result in enumerate(results):
        assert isinstance(result, Prediction)
        assert (result.model, result.version, result.predicted) == (7, 2, row)
        assert result.made_at == pytest.approx(NOW, abs=1e-6)
        assert result.raw_confidence == minted_from.raw_confidences[row]
        assert result.confidence == minted_from.confidences[row]
    assert len({result.digest for result in results if isinstance(result, Prediction)}) == 5


def test_byte_layout() -> None:
    """Later versions read these ids, so the layout must not change unnoticed."""
    content = base64.urlsafe_b64decode(minted(2)[1])
    signed, mac = content[:50], content[50:]
    assert struct.unpack("<HIQIQ", signed[:26]) == (1, 3, 7, 2, round(NOW * 1e6))
    assert struct.unpack("<ffII", signed[34:]) == (1 / 64, 63 / 64, 1, 1)
    again = hashlib.blake2b(signed, key=KEY.secret, digest_size=16, person=b"prediction id")
    assert mac == again.digest()


@given(
    st.integers(1, 2**32 - 1),
    st.integers(1, 2**63 - 1),
    st.integers(1, 2**31 - 1),
    st.floats(0, 4e9),
    st.integers(0, 2**32 - 1),
)
def test_ids_have_88_url_safe_characters(
    number: int, model: int, version: int, at: float, predicted: int
) -> None:
    """For any key, model, version, time and class."""
    summary = BatchSummary([1.0], [1.0], [predicted])
    key = SigningKey(number, b"x" * 32)
    (id,) = mint(key, model, version, at, summary)
    assert len(id) == ID_LENGTH <= 120
    assert re.fullmatch(r"[A-Za-z0-9_-]+", id)
    result = read(id, keys=(key,), model=model, now=at)
    assert isinstance(result, Prediction)
    assert (result.version, result.predicted) == (version, predicted)
    assert result.made_at == pytest.approx(at, abs=1e-6)


def test_ids_are_unique() -> None:
    """Equal rows of a batch and equal batches at one time have different ids."""
    same = BatchSummary([1.0] * 500, [1.0] * 500, [0] * 500)
    ids = [id for _ in range(40) for id in mint(KEY, 7, 2, NOW, same)]
    assert len(set(ids)) == 20_000
    assert mint(KEY, 7, 2, NOW, BatchSummary([], [], [])) == []


def test_ids_of_a_group_carry_it_and_are_unique() -> None:
    """Also those of equal requests at one time."""
    same = BatchSummary([1.0] * 50, [1.0] * 50, [0] * 50)
    group = group_number("session 7")
    ids = [id for _ in range(40) for id in mint(KEY, 7, 2, NOW, same, 3, group)]
    assert len(set(ids)) == 2_000
    result = read(ids[0], model=7, now=NOW)
    assert isinstance(result, Prediction)
    assert (result.group, result.segment, result.version) == (group, 3, 2)
    (alone,) = mint(KEY, 7, 2, NOW, BatchSummary([1.0], [1.0], [0]), 0, group)
    assert getattr(read(alone, model=7, now=NOW), "group", None) == group
    assert getattr(read(minted()[0]), "group", None) == 0


@given(st.integers(0, 66 * 8 - 1))
def test_id_with_a_changed_bit_is_rejected(bit: int) -> None:
    """Any bit of the content or of the authentication code."""
    content = bytearray(base64.urlsafe_b64decode(minted()[0]))
    content[bit // 8] ^= 1 << bit % 8
    assert refused(base64.urlsafe_b64encode(content).decode())


@given(st.integers(0, ID_LENGTH - 1), st.sampled_from(_ALPHABET))
def test_id_with_a_changed_character_is_rejected(place: int, character: str) -> None:
    """No two texts decode to the same id."""
    (id,) = minted()
    changed = id[:place] + character + id[place + 1 :]
    result = read(changed)
    assert isinstance(result, Prediction) == (changed == id)


@given(st.text(max_size=200) | st.text(_ALPHABET, min_size=88, max_size=88) | st.just("A" * 88))
def test_arbitrary_text_is_not_an_id(text: str) -> None:
    """It is refused without an error."""
    assert refused(text)


def test_alternative_encodings_of_an_id_are_rejected() -> None:
    """One prediction could otherwise have two labels."""
    ids = minted(300)
    id = next(id for id in ids if "-" in id and "_" in id)
    assert isinstance(read(id), Prediction)
    for other in (
        id + "=", id + "\n", " " + id, id[:-1], id.replace("-", "+"),
        id.replace("_", "/"), id.swapcase(), id + id,
    ):  # fmt: skip
        assert refused(other)


def test_id_is_bound_to_its_model() -> None:
    (id,) = minted(model=7)
    assert "another model" in refused(id, model=8)


def test_id_expires() -> None:
    """By the reader's clock."""
    (id,) = minted()
    assert isinstance(read(id, now=NOW + _MONTH - 1), Prediction)
    result = read(id, now=NOW + _MONTH + 1)
    assert isinstance(result, Refusal)
    assert result.status == "expired"
    assert "2592000" in result.reason


def test_small_clock_skew_is_accepted() -> None:
    """Up to five minutes."""
    (id,) = minted()
    assert isinstance(read(id, now=NOW - 299), Prediction)
    assert "301 seconds from now" in refused(id, now=NOW - 301)


def test_rotated_keys_verify_until_removed() -> None:
    (id,) = minted()
    newer = SigningKey(4, bytes(32))
    assert isinstance(read(id, keys=(KEY, newer)), Prediction)
    assert "given up" in refused(id, keys=(newer,))
    assert "changed" in refused(id, keys=(SigningKey(3, bytes(32)),))


def test_a_key_is_not_shown() -> None:
    """Neither logs nor tracebacks with variables show it."""
    assert repr(KEY) == "SigningKey(number=3)"


@pytest.mark.parametrize("rows", [12, 200])
def test_confidences_are_those_of_the_predicted_class(rows: int) -> None:
    """Against float64: what the classifier gave the class that the calibrator has first.

    Few rows are worked out without NumPy, by the same formula.
    """
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(rows, 5)) * 4).astype(np.float32)
    probabilities = rng.dirichlet(np.ones(5), rows).astype(np.float32)
    logits[: rows // 4, 2] = -np.inf
    probabilities[: rows // 4, 2] = 0
    summary = summarise_predictions(logits, probabilities)
    for row in range(rows):
        wide = logits[row].astype(np.float64)
        softmax = np.exp(wide - wide.max())
        softmax /= softmax.sum()
        best = int(np.argmax(probabilities[row]))
        assert summary.predicted[row] == best
        assert summary.confidences[row] == probabilities[row, best]
        # float32 represents a difference of logits near 20 to 1e-6.
        assert summary.raw_confidences[row] == pytest.approx(softmax[best], rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_confidences_of_extreme_logits_are_in_range(dtype: type, times: int) -> None:
    """Extremes of each type, masked classes and ties give no overflow and no NaN."""
    top = np.finfo(dtype).max
    lowest, masked = [-top] * 3, [0, -np.inf, -np.inf]
    logits = np.array([[top, -top, 0], lowest, masked, [5, 5, 5], [top, -top, 0]] * times, dtype)
    third = [1 / 3] * 3
    probabilities = [[1, 0, 0], third, [1, 0, 0], [0.2, 0.4, 0.4], [0, 1, 0]] * times
    summary = summarise_predictions(logits, np.array(probabilities, np.float32))
    assert summary.predicted == [0, 0, 0, 1, 1] * times
    expected = [1, 1 / 3, 1, 1 / 3, 0] * times
    np.testing.assert_allclose(summary.raw_confidences, expected, rtol=1e-6, atol=1e-300)
    np.testing.assert_allclose(summary.confidences, [1, 1 / 3, 1, 0.4, 1] * times, rtol=1e-6)


@pytest.mark.parametrize("group", [0, group_number("session 7")])
def test_ids_of_adapted_answers_carry_the_state(group: int) -> None:
    """Its number is the upper half of the model; without a state the bytes are those of before."""
    number, model = 2**32 - 1, 2**32 - 2
    (id,) = mint(KEY, model, 2, NOW, predictions(1), 3, group, number)
    content = base64.urlsafe_b64decode(id)
    assert struct.unpack("<BBIII", content[:14]) == (4 if group else 3, 3, 3, model, number)
    result = read(id, model=model)
    assert isinstance(result, Prediction)
    assert (result.adaptation, result.group, result.model) == (number, group, model)
    assert "another model" in refused(id, model=7)
    others = mint(KEY, 7, 2, NOW, predictions(1), 3, group)
    assert getattr(read(others[0]), "adaptation", None) == 0
