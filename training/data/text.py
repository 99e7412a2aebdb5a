"""Texts in Parquet files, and vocabularies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recalib.core.options import check_option
from recalib.errors import InputError
from training.data.base import Files, Parts, Source
from training.data.classes import Rows, check_classes, parts_of
from training.data.split import Inputs, keys_of, tensor_of
from training.data.tables import read_table

if TYPE_CHECKING:
    from torch import Tensor

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass
class Text(Source):
    """Texts, one in each row of a Parquet file, lower-cased and split into words and punctuation.

    Models receive int64 (N, L): word indices, padded with 0 to the longest text of the batch.

    Options: `train`, `test` and optionally `validation`: files; `text` and `label`, the names of
    the columns; `least`, the minimum count of a vocabulary word in the training texts; `longest`,
    the maximum number of words of a text, the rest is cut; `classes`, the number of classes or
    their names, by default from the training labels.
    """

    train: str
    test: str | None = None
    validation: str | None = None
    text: str = "text"
    label: str = "label"
    least: int = 1
    longest: int = 1000
    classes: int | list[str] | None = None

    def __post_init__(self) -> None:
        check_classes(self.classes)
        check_option("least", self.least, self.least >= 1, "1 or more")
        check_option("longest", self.longest, self.longest >= 1, "1 or more")

    def read(self, files: Files) -> Parts:
        texts = self.of_splits(partial(self._read, files))
        vocabulary = Vocabulary.of(texts["train"][0], self.least)
        rows = {
            name: Rows(Words(words, vocabulary), labels, field)
            for name, (words, labels, field) in texts.items()
        }
        return parts_of(rows, {"vocabulary": len(vocabulary)}, self.classes)

    def _read(self, files: Files, name: str) -> tuple[list[list[str]], Any, str]:
        """Return the texts and the labels of a file, and the labels' field for errors."""
        path = files.path(getattr(self, name), name)
        table = read_table(path, [self.text, self.label], f"data.options.{name}")
        texts = []
        for row, text in enumerate(table[self.text].to_pylist()):
            if not isinstance(text, str):
                found = "nothing" if text is None else type(text).__name__
                raise InputError(f"{path.name}: {self.text}[{row}]", found=found, accepted="a text")
            texts.append(_WORD.findall(text.lower())[: self.longest])
        return texts, table[self.label], f"{path.name}: {self.label}"


class Vocabulary:
    """Word indices: 0 is padding, 1 is an unknown word, `words` follow from 2 on."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._numbers = {word: number for number, word in enumerate(words, start=2)}

    @classmethod
    def of(cls, texts: Iterable[Iterable[str]], least: int) -> Vocabulary:
        """Return the vocabulary of words with at least `least` occurrences, most frequent first."""
        counts = Counter(word for text in texts for word in text)
        words = [word for word, count in counts.items() if count >= least]
        return cls(sorted(words, key=lambda word: (-counts[word], word)))

    def __len__(self) -> int:
        return len(self._numbers) + 2

    def numbers(self, words: Iterable[str]) -> list[int]:
        """Return the indices of the words."""
        return [self._numbers.get(word, 1) for word in words]


class Words(Inputs):
    """Texts as lists of word indices."""

    def __init__(self, texts: Sequence[Sequence[str]], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._numbers = [np.array(vocabulary.numbers(text), dtype=np.int64) for text in texts]
        # Keys use the words, not their indices: different unknown words have the same index.
        self._keys = keys_of([" ".join(text).encode() for text in texts])

    def __len__(self) -> int:
        return len(self._numbers)

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        texts = [self._numbers[row] for row in rows.tolist()]
        numbers = np.zeros((len(texts), max(1, *(len(text) for text in texts))), dtype=np.int64)
        for place, text in enumerate(texts):
            numbers[place, : len(text)] = text
        return tensor_of(numbers)

    def keys(self) -> NDArray[np.bytes_]:
        return self._keys
