"""Answers of language models as rows for `recalib.fit`.

- `option_logits`: log-probabilities of tokens to logits of the options of a question, (N, K).
- `yes_no_logits`: the same for yes/no questions, (N, 2).
- `verbalised_confidences`: statements such as "I am 80% sure" to probabilities, (N,).
- `first_token`: the log-probabilities in an OpenAI-style response.
- `harness_sample`: a question in the samples of lm-evaluation-harness.
- `split_questions`: rows to fit and rows to measure, without a question in both.

An API returns the log-probabilities of the k likeliest tokens only. An option that is not among
them is masked (−inf), or gets the largest log-probability that it can have.

Legend: N rows, K options.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recalib.errors import InputError

__all__ = [
    "first_token",
    "harness_sample",
    "option_logits",
    "split_questions",
    "verbalised_confidence",
    "verbalised_confidences",
    "yes_no_logits",
]

#: OpenAI returns this for a token that is not among the likeliest.
_NOT_RETURNED = -9999.0
#: Rounded log-probabilities may be above 0, and their probabilities may sum to more than 1.
_ROUNDING = 1e-3
#: The least probability left for options that were not returned.
_MIN_REMAINDER = 1e-9

_YES = ("yes", "Yes", "YES")
_NO = ("no", "No", "NO")


def option_logits(
    top_logprobs: Iterable[Any],
    options: Sequence[str] | Mapping[str, Sequence[str]],
    *,
    missing: Literal["mask", "bound"] = "mask",
) -> NDArray[np.float64]:
    """Return the log-probabilities of the options of each question, (N, K), for `recalib.fit`.

    Spaces around a token are ignored. The probabilities of several tokens of one option are added:
    "A" and " A" are the same answer. Other tokens are left out; a map that is shift invariant
    divides the rest of the probability among the options.

    Parameters
    ----------
    top_logprobs: for each of N questions the tokens with their log-probabilities (natural
        logarithm): a dictionary from token to number, or a sequence of dictionaries or objects with
        `token` and `logprob`, as in responses of OpenAI.
    options: the K answers, in the order of the classes: tokens, or a dictionary from the answer to
        its tokens.
    missing: the logit of an option that was not returned (or with −inf, or OpenAI's −9999). `mask`:
        −inf, so its calibrated probability is 0, and `fit` refuses it as a label. `bound`: the
        largest value that it can have, the smallest returned log-probability or the logarithm of
        the rest of the probability, whichever is smaller.

    Raises
    ------
    InputError: no question, fewer than two options, a token of two options, a log-probability that
        is no number or above 0, or with `mask` a question with none of the options.

    Examples
    --------
    >>> option_logits([{"A": -0.1, " B": -2.5, "The": -6.0}], ["A", "B", "C"])
    array([[-0.1, -2.5, -inf]])
    >>> option_logits([{"A": -0.1, " B": -2.5, "The": -6.0}], ["A", "B", "C"], missing="bound")
    array([[-0.1, -2.5, -6. ]])
    """
    if missing not in ("mask", "bound"):
        raise InputError("missing", found=repr(missing), accepted="mask or bound")
    classes = _class_of_token(options)
    rows = []
    for row, entry in enumerate(top_logprobs):
        field = f"top_logprobs[{row}]"
        tokens = _log_probabilities(entry, field)
        logits = np.full(len(options), -np.inf)
        for token, value in tokens:
            if token.strip() in classes:
                k = classes[token.strip()]
                logits[k] = np.logaddexp(logits[k], value)
        if missing == "bound":
            logits[np.isneginf(logits)] = _largest_of_missing([value for _, value in tokens])
        elif np.isneginf(logits).all():
            raise InputError(
                field,
                found=f"none of the options among {[token for token, _ in tokens][:5]}",
                accepted='at least one option, or missing="bound"',
            )
        rows.append(logits)
    if not rows:
        raise InputError("top_logprobs", found="no question", accepted="at least one")
    return np.stack(rows)


def yes_no_logits(
    top_logprobs: Iterable[Any],
    *,
    yes: Sequence[str] = _YES,
    no: Sequence[str] = _NO,
    missing: Literal["mask", "bound"] = "mask",
) -> NDArray[np.float64]:
    """Return the log-probabilities of no (class 0) and yes (class 1), (N, 2).

    Parameters
    ----------
    top_logprobs, missing: as in `option_logits`.
    yes, no: the tokens of each answer.

    Raises
    ------
    InputError: as `option_logits`.

    Examples
    --------
    >>> yes_no_logits([{"Yes": -1.0, " yes": -1.0, "No": -1.5}]).round(2)
    array([[-1.5 , -0.31]])
    """
    return option_logits(top_logprobs, {"no": no, "yes": yes}, missing=missing)


def first_token(response: Any, position: int = 0) -> dict[str, float]:
    """Return the log-probabilities of a generated token by token, from an OpenAI-style response.

    Parameters
    ----------
    response: the response of chat completions or of completions, as a dictionary or as the object
        of the client, requested with log-probabilities.
    position: the index of the token in the answer; the first by default.

    Raises
    ------
    InputError: the response has no log-probabilities of that token.

    Examples
    --------
    >>> token = {"token": "A", "logprob": -0.1, "top_logprobs": [{"token": "B", "logprob": -2.5}]}
    >>> first_token({"choices": [{"logprobs": {"content": [token]}}]})
    {'A': -0.1, 'B': -2.5}
    """
    try:
        logprobs = _get(_get(response, "choices")[0], "logprobs")
        content = _get(logprobs, "content")
        if content is None:  # completions, not chat
            token = _get(logprobs, "tokens")[position]
            entry = {token: _get(logprobs, "token_logprobs")[position]}
            entry |= dict(_get(logprobs, "top_logprobs")[position])
        else:
            generated = content[position]
            tokens = [generated, *(_get(generated, "top_logprobs") or ())]
            entry = {_get(token, "token"): _get(token, "logprob") for token in tokens}
    except (IndexError, KeyError, TypeError):
        raise InputError(
            "response",
            found=f"no log-probabilities of token {position}",
            accepted="a response of OpenAI's interface, requested with logprobs and top_logprobs",
        ) from None
    return entry


def harness_sample(sample: Mapping[str, Any]) -> tuple[list[float], int]:
    """Return the log-likelihoods of a question's options, (K,), and the index of the right one.

    Commands read whole files of samples: `recalib fit samples_arc_easy.jsonl -o arc.calib`.

    Parameters
    ----------
    sample: a line of the file that lm-evaluation-harness writes with `--log_samples`, of a task
        with multiple choice: `filtered_resps` has the log-likelihood of each option, `target` the
        index or the text of the right option, and `arguments` the text of each.

    Raises
    ------
    InputError: answers that are generated texts, or a target that is not one of the options.

    Examples
    --------
    >>> options = {"gen_args_0": {"arg_1": " no"}, "gen_args_1": {"arg_1": " yes"}}
    >>> answers = [["-2.5", "False"], ["-0.5", "True"]]
    >>> harness_sample({"filtered_resps": answers, "target": "1", "arguments": options})
    ([-2.5, -0.5], 1)
    """
    try:
        scores = [float(answer[0]) for answer in sample["filtered_resps"]]
        arguments = sample["arguments"]
        if isinstance(arguments, Mapping):
            arguments = [arguments[f"gen_args_{k}"] for k in range(len(scores))]
            options = [str(request["arg_1"]).strip() for request in arguments]
        else:
            options = [str(arguments[k][1]).strip() for k in range(len(scores))]
    except (IndexError, KeyError, TypeError, ValueError):
        accepted = "log-likelihoods of options: a task with multiple choice"
        found = f"{sample.get('filtered_resps')!r:.60}"
        raise InputError("filtered_resps", found=found, accepted=accepted) from None
    target = str(sample.get("target")).strip()
    classes = {k for k, option in enumerate(options) if option == target}
    if target.isdecimal() and int(target) < len(scores):
        classes.add(int(target))
    if len(classes) != 1:
        accepted = f"the index of one option, or its text: {', '.join(options)[:200]}"
        raise InputError("target", found=repr(sample.get("target")), accepted=accepted)
    return scores, classes.pop()


_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)"
#: Of 10 or 100 only: "50/50" and dates are no confidences.
_RATIO = re.compile(rf"({_NUMBER})\s*(?:/|out\s+of)\s*(100?)(?![\w/.]\d|\w|/)", re.IGNORECASE)
_PERCENTAGE = re.compile(rf"({_NUMBER})\s*(?:%|per\s?cent\b)", re.IGNORECASE)
#: Not part of a word, of a longer number or of a negative one.
_PLAIN = re.compile(rf"(?<![\w.,/-])({_NUMBER})(?![\w/%-]|[.,]\d)")
#: A range or a negative number: a sign or another number before the number, or one after it.
_PREFIX = re.compile(r"(?:[-−–+.,/\w]|\d\s*(?:-|–|to|or|and)\s+)$")
_SUFFIX = re.compile(r"\s*(?:-|–|to|or|and)\s*\d")


def verbalised_confidence(text: str, *, limit: float = 0.005) -> float:
    """Return the probability that an answer states about itself.

    Accepted are one percentage ("I am 80% sure", "80 percent"), one ratio to 10 or 100 ("8/10",
    "8 out of 10") or one number with a decimal point in [0, 1] ("Confidence: 0.8"). A percentage or
    ratio may stand beside other numbers. Anything else is refused: words ("likely"), ranges
    ("70-80%"), two percentages, and whole numbers without a unit, since 1 may mean 1% or certainty.

    Parameters
    ----------
    limit: the result is at least this and at most 1 − limit. Statements are rounded, so "100%"
        means over 99.5%, and it is not infinitely better than 99%. In [0, 0.5).

    Raises
    ------
    InputError: a text without exactly one confidence, or one outside [0, 1].

    Examples
    --------
    >>> verbalised_confidence("The answer is 42. I am 80% sure.")
    0.8
    >>> verbalised_confidence("Confidence: 1.0")
    0.995
    """
    return _stated_probability(text, "text", limit)


def verbalised_confidences(texts: Iterable[str], *, limit: float = 0.005) -> NDArray[np.float64]:
    """Return the probability that each answer states about itself, (N,).

    With labels (N,) that say whether the answers are right, `recalib.fit(confidences, right,
    input="probabilities")` calibrates them.

    Parameters
    ----------
    texts: N answers.
    limit: as in `verbalised_confidence`.

    Raises
    ------
    InputError: as `verbalised_confidence`, naming the first text that is refused.

    Examples
    --------
    >>> verbalised_confidences(["I am 80% sure", "Confidence: 0.6", "9 out of 10"])
    array([0.8, 0.6, 0.9])
    """
    if isinstance(texts, str):
        raise InputError("texts", found=f"one text, {texts!r:.60}", accepted="a list of texts")
    return np.array(
        [_stated_probability(text, f"texts[{row}]", limit) for row, text in enumerate(texts)],
        np.float64,
    )


def split_questions(
    questions: ArrayLike, fraction: float = 0.5, seed: int = 0
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the indices of rows to fit and of rows to measure, without a question in both.

    Several rows of one question (other orders of the options, several samples of an answer) are
    right or wrong together. Split at random, the rows to measure would repeat rows of the fit.

    Parameters
    ----------
    questions: (N,), the question of each row: numbers or texts.
    fraction: of the questions, to fit, in (0, 1); each part has at least one question.
    seed: of the random choice.

    Raises
    ------
    InputError: fewer than two questions, or a fraction outside (0, 1).

    Examples
    --------
    >>> split_questions(["q1", "q1", "q2", "q2"])
    (array([0, 1]), array([2, 3]))
    """
    if not 0 < fraction < 1:
        raise InputError("fraction", found=f"{fraction:g}", accepted="0 < fraction < 1")
    values = np.asarray(questions)
    if values.ndim != 1:
        raise InputError("questions", found=f"shape {values.shape}", accepted="shape (N,)")
    names, question = np.unique(values, return_inverse=True)
    if len(names) < 2:
        raise InputError("questions", found=f"{len(names)} question(s)", accepted="at least 2")
    count = min(max(round(fraction * len(names)), 1), len(names) - 1)
    fitted = np.isin(question, np.random.default_rng(seed).permutation(len(names))[:count])
    return np.flatnonzero(fitted), np.flatnonzero(~fitted)


def _class_of_token(options: Sequence[str] | Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the class of each token, without spaces."""
    if isinstance(options, str) or len(options) < 2:
        raise InputError("options", found=repr(options), accepted="at least two tokens")
    tokens = options.values() if isinstance(options, Mapping) else [[token] for token in options]
    classes: dict[str, int] = {}
    for k, of_class in enumerate(tokens):
        if isinstance(of_class, str):
            raise InputError(f"options[{k}]", found=repr(of_class), accepted="a sequence of tokens")
        for token in of_class:
            if classes.setdefault(token.strip(), k) != k:
                raise InputError(
                    "options", found=f"token {token.strip()!r} of two options", accepted="of one"
                )
    return classes


def _log_probabilities(entry: Any, field: str) -> list[tuple[str, float]]:
    """Return the returned tokens with their log-probabilities."""
    if isinstance(entry, Mapping):
        pairs = list(entry.items())
    elif isinstance(entry, Iterable) and not isinstance(entry, str):
        pairs = [(_get(token, "token"), _get(token, "logprob")) for token in entry]
    else:
        raise InputError(
            field,
            found=f"type {type(entry).__name__}",
            accepted="a dictionary from token to log-probability, or a sequence of tokens",
        )
    returned = []
    for token, value in pairs:
        number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not isinstance(token, str) or not number or math.isnan(value) or value > _ROUNDING:
            raise InputError(
                f"{field}[{token!r}]",
                found=repr(value),
                accepted="a log-probability of at most 0, and −inf for a token not returned",
            )
        if value > _NOT_RETURNED:
            returned.append((token, float(value)))
    return returned


def _largest_of_missing(returned: Sequence[float]) -> float:
    """Return the largest log-probability that a token not among the likeliest can have."""
    remainder = 1 - math.fsum(map(math.exp, returned))
    return min([math.log(max(remainder, _MIN_REMAINDER)), *returned])


def _get(value: Any, name: str) -> Any:
    """Return an entry of a dictionary, or an attribute of an object, or None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _stated_probability(text: str, field: str, limit: float) -> float:
    if not 0 <= limit < 0.5:
        raise InputError("limit", found=f"{limit:g}", accepted="0 ≤ limit < 0.5")
    if not isinstance(text, str):
        raise InputError(field, found=f"type {type(text).__name__}", accepted="a text")
    statements = [(match, float(match[1]) / 100) for match in _PERCENTAGE.finditer(text)] + [
        (match, float(match[1]) / float(match[2])) for match in _RATIO.finditer(text)
    ]
    if not statements:
        plain = list(_PLAIN.finditer(text))
        statements = [(match, float(match[1])) for match in plain if "." in match[1]]
        if len(plain) != 1:
            statements = []
    if len(statements) == 1:
        match, probability = statements[0]
        is_range = _PREFIX.search(text[: match.start()]) or _SUFFIX.match(text[match.end() :])
        if probability <= 1 and not is_range:
            return min(max(probability, limit), 1 - limit)
    raise InputError(
        field,
        found=repr(text if len(text) <= 80 else f"{text[:77]}..."),
        accepted="one confidence from 0 to 1, such as 80%, 8/10 or 0.8",
    )
