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

from recalib.prediction_ids import (
    ID_LENGTH,
    Prediction,
    Predictions,
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


def predictions(rows: int) -> Predictions:
    steps = [row / 64 for row in range(rows)]
    return Predictions(steps, [1 - step for step in steps], list(range(rows)))


def minted(rows: int = 1, model: int = 7, version: int = 2, at: float = NOW) -> list[str]:
    return mint(KEY, model, version, at, predictions(rows))


def read(
    one: str, *, keys: tuple[SigningKey, ...] = (KEY,), model: int = 7, now: float = NOW
) -> Prediction | Refusal:
    known = {key.number: key for key in keys}
    (found,) = read_ids([one], known, model=model, now=now, lifetime_seconds=_MONTH)
    return found


def refused(one: str, **more: object) -> str:
    found = read(one, **more)  # type: ignore[arg-type]
    assert isinstance(found, Refusal)
    assert found.status == "invalid"
    return found.reason


def test_id_round_trip() -> None:
    """Confidences are float32, times have microseconds."""
    ids = minted(5)
    found = read_ids(ids, {3: KEY}, model=7, now=NOW, lifetime_seconds=1)
    given_ = predictions(5)
    for row, one in enumerate(found):
        assert isinstance(one, Prediction)
        assert (one.model, one.version, one.predicted) == (7, 2, row)
        assert one.made_at == pytest.approx(NOW, abs=1e-6)
        assert one.raw_confidence == given_.raw_confidences[row]
        assert one.confidence == given_.confidences[row]
    assert len({one.digest for one in found if isinstance(one, Prediction)}) == 5


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
    said = Predictions([1.0], [1.0], [predicted])
    key = SigningKey(number, b"x" * 32)
    (one,) = mint(key, model, version, at, said)
    assert len(one) == ID_LENGTH <= 120
    assert re.fullmatch(r"[A-Za-z0-9_-]+", one)
    found = read(one, keys=(key,), model=model, now=at)
    assert isinstance(found, Prediction)
    assert (found.version, found.predicted) == (version, predicted)
    assert found.made_at == pytest.approx(at, abs=1e-6)


def test_ids_are_unique() -> None:
    """Equal rows of a batch and equal batches at one time have different ids."""
    same = Predictions([1.0] * 500, [1.0] * 500, [0] * 500)
    found = [one for _ in range(40) for one in mint(KEY, 7, 2, NOW, same)]
    assert len(set(found)) == 20_000
    assert mint(KEY, 7, 2, NOW, Predictions([], [], [])) == []


@given(st.integers(0, 66 * 8 - 1))
def test_id_with_a_changed_bit_is_rejected(bit: int) -> None:
    """Any bit of the content or of the authentication code."""
    content = bytearray(base64.urlsafe_b64decode(minted()[0]))
    content[bit // 8] ^= 1 << bit % 8
    assert refused(base64.urlsafe_b64encode(content).decode())


@given(st.integers(0, ID_LENGTH - 1), st.sampled_from(_ALPHABET))
def test_id_with_a_changed_character_is_rejected(place: int, character: str) -> None:
    """No two texts decode to the same id."""
    (one,) = minted()
    changed = one[:place] + character + one[place + 1 :]
    found = read(changed)
    assert isinstance(found, Prediction) == (changed == one)


@given(st.text(max_size=200) | st.text(_ALPHABET, min_size=88, max_size=88) | st.just("A" * 88))
def test_arbitrary_text_is_not_an_id(text: str) -> None:
    """It is refused without an error."""
    assert refused(text)


def test_alternative_encodings_of_an_id_are_rejected() -> None:
    """One prediction could otherwise have two labels."""
    ids = minted(300)
    one = next(one for one in ids if "-" in one and "_" in one)
    assert isinstance(read(one), Prediction)
    for other in (
        one + "=", one + "\n", " " + one, one[:-1], one.replace("-", "+"),
        one.replace("_", "/"), one.swapcase(), one + one,
    ):  # fmt: skip
        assert refused(other)


def test_id_is_bound_to_its_model() -> None:
    (one,) = minted(model=7)
    assert "another model" in refused(one, model=8)


def test_id_expires() -> None:
    """By the reader's clock."""
    (one,) = minted()
    assert isinstance(read(one, now=NOW + _MONTH - 1), Prediction)
    found = read(one, now=NOW + _MONTH + 1)
    assert isinstance(found, Refusal)
    assert found.status == "expired"
    assert "2592000" in found.reason


def test_small_clock_skew_is_accepted() -> None:
    """Up to five minutes."""
    (one,) = minted()
    assert isinstance(read(one, now=NOW - 299), Prediction)
    assert "301 seconds from now" in refused(one, now=NOW - 301)


def test_rotated_keys_verify_until_removed() -> None:
    (one,) = minted()
    newer = SigningKey(4, bytes(32))
    assert isinstance(read(one, keys=(KEY, newer)), Prediction)
    assert "given up" in refused(one, keys=(newer,))
    assert "changed" in refused(one, keys=(SigningKey(3, bytes(32)),))


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
    found = summarise_predictions(logits, probabilities)
    for row in range(rows):
        wide = logits[row].astype(np.float64)
        softmax = np.exp(wide - wide.max())
        softmax /= softmax.sum()
        best = int(np.argmax(probabilities[row]))
        assert found.predicted[row] == best
        assert found.confidences[row] == probabilities[row, best]
        # float32 represents a difference of logits near 20 to 1e-6.
        assert found.raw_confidences[row] == pytest.approx(softmax[best], rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_confidences_of_extreme_logits_are_in_range(dtype: type, times: int) -> None:
    """Extremes of each type, masked classes and ties give no overflow and no NaN."""
    top = np.finfo(dtype).max
    lowest, masked = [-top] * 3, [0, -np.inf, -np.inf]
    logits = np.array([[top, -top, 0], lowest, masked, [5, 5, 5], [top, -top, 0]] * times, dtype)
    third = [1 / 3] * 3
    probabilities = [[1, 0, 0], third, [1, 0, 0], [0.2, 0.4, 0.4], [0, 1, 0]] * times
    found = summarise_predictions(logits, np.array(probabilities, np.float32))
    assert found.predicted == [0, 0, 0, 1, 1] * times
    expected = [1, 1 / 3, 1, 1 / 3, 0] * times
    np.testing.assert_allclose(found.raw_confidences, expected, rtol=1e-6, atol=1e-300)
    np.testing.assert_allclose(found.confidences, [1, 1 / 3, 1, 0.4, 1] * times, rtol=1e-6)
