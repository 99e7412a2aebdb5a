"""Answers of language models as rows for a fit."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recalib
import recalib.llm
from recalib.errors import InputError
from recalib.llm import (
    first_token,
    option_logits,
    split_questions,
    verbalised_confidence,
    verbalised_confidences,
    yes_no_logits,
)

TOP = [
    {"token": "A", "logprob": -0.4},
    {"token": " A", "logprob": -2.0},
    {"token": "B", "logprob": -2.5},
    {"token": "The", "logprob": -4.0},
]
BOTH_A = np.logaddexp(-0.4, -2.0)


def test_tokens_are_read_from_dictionaries_lists_and_objects() -> None:
    as_dictionary = {entry["token"]: entry["logprob"] for entry in TOP}
    as_objects = [SimpleNamespace(**entry) for entry in TOP]
    for entry in (TOP, as_dictionary, as_objects):
        result = option_logits([entry], ["A", "B", "C"])
        np.testing.assert_allclose(result, [[BOTH_A, -2.5, -np.inf]])


def test_option_that_was_not_returned_is_masked_or_bounded() -> None:
    """The bound is the smallest returned token, or what is left of the probability."""
    scarce = {"A": math.log(0.9), "B": math.log(0.09)}
    for marker in ({}, {"C": -np.inf}, {"C": -9999.0}):
        np.testing.assert_array_equal(
            np.isneginf(option_logits([{**scarce, **marker}], ["A", "B", "C"])), [[0, 0, 1]]
        )
        bounded = option_logits([{**scarce, **marker}], ["A", "B", "C"], missing="bound")
        np.testing.assert_allclose(np.exp(bounded), [[0.9, 0.09, 0.01]])
    smallest = option_logits([{"A": -1.0, "x": -3.0}], ["A", "B"], missing="bound")
    np.testing.assert_array_equal(smallest, [[-1, -3]])
    full = option_logits([{"A": 0.0}], ["A", "B"], missing="bound")
    assert np.isfinite(full).all()
    np.testing.assert_array_equal(option_logits([{}], ["A", "B"], missing="bound"), [[0, 0]])


def test_logits_are_ready_for_a_fit() -> None:
    """Shares of several options are calibrated; a masked option gets probability 0."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 1.0, 1.0, 1.0], 400)
    labels = np.array([rng.choice(4, p=row) for row in p])
    sharp = p**2 / (p**2).sum(axis=1, keepdims=True)
    answers = [dict(zip("ABCD", np.log(row), strict=True)) for row in sharp]
    top = [dict(sorted(answer.items(), key=lambda pair: -pair[1])[:3]) for answer in answers]
    complete = recalib.fit(option_logits(answers, list("ABCD")), labels)
    assert complete.parameters["temperature"] == pytest.approx(2, rel=0.15)
    bounded = recalib.fit(option_logits(top, list("ABCD"), missing="bound"), labels)
    assert bounded.parameters["temperature"] == pytest.approx(2, rel=0.25)
    masked = option_logits(top, list("ABCD"))
    probabilities = bounded.predict(masked)
    assert (probabilities[np.isneginf(masked)] == 0).all()
    with pytest.raises(InputError, match="which is masked"):
        recalib.fit(masked, labels)


def test_yes_and_no_are_two_classes() -> None:
    rows = [{"Yes": -0.5, " yes": -2.0, "No": -1.5}, {"no": -0.1}]
    np.testing.assert_allclose(
        yes_no_logits(rows, missing="bound"),
        [[-1.5, np.logaddexp(-0.5, -2.0)], [-0.1, math.log(1 - math.exp(-0.1))]],
    )
    spanish = yes_no_logits([{"sí": -0.5, "no": -1.5}], yes=["sí"], no=["no"])
    np.testing.assert_array_equal(spanish, [[-1.5, -0.5]])


def test_responses_of_both_interfaces() -> None:
    chat = {"token": "B", "logprob": -2.5, "top_logprobs": TOP[:2]}
    expected = {"B": -2.5, "A": -0.4, " A": -2.0}
    response: dict[str, Any] = {"choices": [{"logprobs": {"content": [{}, chat]}}]}
    assert first_token(response, position=1) == expected
    as_object = SimpleNamespace(
        choices=[SimpleNamespace(logprobs=SimpleNamespace(content=[SimpleNamespace(**chat)]))]
    )
    assert first_token(as_object) == expected
    completion = {"tokens": ["B"], "token_logprobs": [-2.5], "top_logprobs": [{"A": -0.4}]}
    assert first_token({"choices": [{"logprobs": completion}]}) == {"B": -2.5, "A": -0.4}
    for empty in (
        {},
        {"choices": []},
        {"choices": [{"logprobs": None}]},
        response | {"choices": 1},
    ):
        with pytest.raises(InputError, match="response: found no log-probabilities of token 0"):
            first_token(empty)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([], ["A", "B"], "top_logprobs: found no question"),
        ([{"A": -1.0}, {"The": -1.0}], ["A", "B"], r"top_logprobs\[1\]: found none of the options"),
        ([{"A": 0.5}], ["A", "B"], r"top_logprobs\[0\]\['A'\]: found 0.5"),
        ([{"A": math.nan}], ["A", "B"], "found nan"),
        ([{"A": "-1"}], ["A", "B"], "found '-1'"),
        ([{"A": True}], ["A", "B"], "found True"),
        ([[{"logprob": -1.0}]], ["A", "B"], r"top_logprobs\[0\]\[None\]"),
        (["A"], ["A", "B"], r"top_logprobs\[0\]: found type str"),
        ([{"A": -1.0}], ["A"], "options: found"),
        ([{"A": -1.0}], "AB", "options: found 'AB'"),
        ([{"A": -1.0}], {"a": "A", "b": ["B"]}, r"options\[0\]: found 'A'"),
        ([{"A": -1.0}], ["A", " A"], "token 'A' of two options"),
    ],
)
def test_invalid_log_probabilities_are_rejected(rows: Any, options: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        option_logits(rows, options)


def test_unknown_treatment_of_missing_options_is_rejected() -> None:
    with pytest.raises(InputError, match="missing: found 'drop'"):
        option_logits([{"A": -1.0}], ["A", "B"], missing="drop")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I am 80% sure.", 0.8),
        ("The answer is 42. Confidence: 99.4 %", 0.994),
        ("80 percent", 0.8),
        ("**85 per cent**", 0.85),
        ("Confidence: 0.8.", 0.8),
        ("confidence=.75, answer B", 0.75),
        ("8/10", 0.8),
        ("I'd say 8 out of 10", 0.8),
        ("80/100", 0.8),
        ("100%", 0.995),
        ("0%", 0.005),
        ("1.0", 0.995),
    ],
)
def test_stated_confidences(text: str, expected: float) -> None:
    assert verbalised_confidence(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "", "likely", "80", "1", "1.5", "120%", "12/10", "-5%", "−5%", "70-80%", "70–80%",
        "70 to 80%", "between 70% and 80%", "70% - 80", "0.8 or 0.9", "50/50", "1/2/2024",
        "8/10/2024", "7-8/10", "1,80%", "0,8", "1,000.5", "v0.8b", "0.5.1", "12. 0.8", "8/1000",
    ],
)  # fmt: skip
def test_ambiguous_statements_are_rejected(text: str) -> None:
    with pytest.raises(InputError, match=r"texts\[1\]: found .*accepted: one confidence"):
        verbalised_confidences(["50%", text])


@given(st.integers(1, 99), st.sampled_from(["{}%", "I am {} % sure", "{} out of 100", "({}/100)"]))
def test_every_percentage_is_read(percent: int, form: str) -> None:
    assert verbalised_confidence(form.format(percent)) == pytest.approx(percent / 100)


@given(st.text("0123456789.,%/- −tofu", max_size=20))
def test_any_text_gives_a_probability_or_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        assert 0.005 <= verbalised_confidence(text) <= 0.995


def test_confidences_are_binary_scores_of_a_fit() -> None:
    texts = ["I am 95% sure"] * 50 + ["Confidence: 0.6"] * 50
    correct = np.array([True] * 30 + [False] * 20 + [True] * 25 + [False] * 25)
    confidences = verbalised_confidences(texts, limit=0.01)
    calibrator = recalib.fit(confidences, correct, "vector", input="probabilities")
    result = calibrator.predict(np.array([0.95, 0.6]))[:, 1]
    np.testing.assert_allclose(result, [0.6, 0.5], atol=0.01)
    for limit in (0.5, -0.1):
        with pytest.raises(InputError, match="limit"):
            verbalised_confidences(texts, limit=limit)


def test_rows_of_a_question_stay_together() -> None:
    questions = np.repeat([f"q{i}" for i in range(101)], np.arange(101) % 3 + 1)
    fitted, measured = split_questions(questions, 0.3, seed=4)
    assert sorted([*fitted, *measured]) == list(range(len(questions)))
    assert not set(questions[fitted]) & set(questions[measured])
    assert len(set(questions[fitted])) == 30
    assert [len(part) for part in split_questions([1, 1, 2], 0.01)] != [0, 3]
    for questions, fraction, message in (
        ([1, 1], 0.5, "1 question"),
        ([[1, 2]], 0.5, "shape"),
        ([1, 2], 1.0, "fraction"),
    ):
        with pytest.raises(InputError, match=message):
            split_questions(questions, fraction)


def test_single_text_is_not_read_letter_by_letter() -> None:
    with pytest.raises(InputError, match="texts: found one text, '95%'; accepted: a list of texts"):
        recalib.llm.verbalised_confidences("95%")
