"""Calibrate the answers of a language model to multiple-choice questions.

    .venv/bin/python examples/language_model.py

The model is small and needs no download: it predicts a character from the previous five. It learns
from descriptions of data sets that scikit-learn ships. A question is a sentence of other
descriptions with a missing word; the options are that word and three others. The model answers as
an API does: with the log-probabilities of its likeliest options, and nothing about the others.
Every question is asked twice, with the options in another order. Both rows of a question are either
fitted or measured.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

import recalib
from recalib.llm import option_logits, split_questions
from recalib.metrics import Estimate
from recalib.metrics.evaluate import evaluate
from recalib.reporting.terminal import metrics_table, say

#: Characters that the model sees, options of a question, and options that it returns.
_CONTEXT, _LETTERS, _TOP = 5, "ABCD", 3


def texts() -> tuple[str, str]:
    """Return the text that the model learns, and the text of the questions."""
    folder = files("sklearn.datasets.descr")
    pages = [
        page.read_text() for page in sorted(folder.iterdir(), key=str) if page.suffix == ".rst"
    ]
    plain = [re.sub(r"[^a-z]+", " ", page.lower()) for page in pages]
    return " ".join(plain[::2]), " ".join(plain[1::2])


class CharacterModel:
    """Probabilities of the next character, from counts of the previous ones."""

    def __init__(self, text: str) -> None:
        self._after = Counter(
            (text[i - n : i], text[i]) for n in range(_CONTEXT + 1) for i in range(n, len(text))
        )
        self._contexts = Counter[str]()
        for (context, _), count in self._after.items():
            self._contexts[context] += count

    def log_probability(self, context: str, word: str) -> float:
        """Return the log-probability of a word and a space after it."""
        total = 0.0
        for character in f"{word} ":
            p = 1 / 27
            for n in range(_CONTEXT + 1):  # longer contexts count more
                recent = context[len(context) - n :]
                p = (self._after[recent, character] + p / 2) / (self._contexts[recent] + 0.5)
            total += math.log(p)
            context += character
        return total

    def answer(self, context: str, options: list[str]) -> dict[str, float]:
        """Return the log-probabilities of the likeliest letters, as an API does."""
        scores = np.array([self.log_probability(context, word) for word in options])
        logprobs = scores - np.logaddexp.reduce(scores)
        top = np.argsort(-logprobs)[:_TOP]
        return {_LETTERS[i]: float(logprobs[i]) for i in top}


def ask(
    count: int,
) -> tuple[list[dict[str, float]], NDArray[np.int64], NDArray[np.int64]]:
    """Return answers, the classes of the right options, and the question of each row."""
    learnt, other = texts()
    model, words = CharacterModel(learnt), other.split()
    rng = np.random.default_rng(0)
    long_words = np.array(sorted({word for word in words if len(word) > 3}))
    places = [i for i in range(5, len(words)) if len(words[i]) > 3]
    answers, labels, questions = [], [], []
    for question, i in enumerate(rng.choice(places, size=count, replace=False)):
        wrong = rng.choice(long_words[long_words != words[i]], size=3, replace=False)
        for _ in range(2):
            options = rng.permutation([words[i], *wrong]).tolist()
            answers.append(model.answer(" ".join(words[i - 5 : i]) + " ", options))
            labels.append(options.index(words[i]))
            questions.append(question)
    return answers, np.array(labels), np.array(questions)


def compare(count: int) -> dict[str, dict[str, Estimate]]:
    """Return metrics of half of the questions, before and after a fit to the other half."""
    answers, labels, questions = ask(count)
    # With `mask`, a right option that was not returned could not be a label of the fit.
    logits = option_logits(answers, list(_LETTERS), missing="bound")
    fitted, measured = split_questions(questions)
    calibrator = recalib.fit(logits[fitted], labels[fitted], map="temperature")
    metrics = ("accuracy", "nll", "ece")
    y = labels[measured]
    return {
        "language model": evaluate(y, logits=logits[measured], metrics=metrics),
        "calibrated": evaluate(
            y, probabilities=calibrator.predict(logits[measured]), metrics=metrics
        ),
    }


def main() -> None:
    """Print the metrics of the questions that were not fitted."""
    questions = 1000
    title = f"{questions // 2} questions, each asked twice"
    say(metrics_table(compare(questions), title))


if __name__ == "__main__":
    main()
