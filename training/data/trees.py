"""Parse trees of sentences: the Stanford Sentiment Treebank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recalib.core.options import check_option
from recalib.errors import InputError
from training.data.base import Files, Parts, Source
from training.data.split import Inputs, Split, keys_of, tensor_of
from training.data.tables import read_table
from training.data.text import Vocabulary, Words

if TYPE_CHECKING:
    from torch import Tensor

_MAX_DEPTH = 500
#: A bracket, or the text between brackets: words may hold other spaces (``8\xa01\\/2``).
_SIGN = re.compile(r"[()]|[^() \t\r\n]+")


class Node(NamedTuple):
    """A node of a binary tree; children come before their parents.

    `label` is 0 to 4, from very negative to very positive; `word` is empty above the leaves; `left`
    and `right` are indices of the children, −1 at the leaves; `height` is 0 at the leaves.
    """

    label: int
    word: str
    left: int
    right: int
    height: int


@dataclass
class Trees(Source):
    """Sentences with a sentiment at every node, in a Parquet file.

    Columns ``split`` (train, dev, test) and ``tree``: bracketed, ``(3 (2 good) (2 film))``. With
    two classes, neutral sentences (2) are excluded, 0 and 1 become 0, 3 and 4 become 1: SST-2 with
    6,920, 872 and 1,821 sentences. With `phrases`, every node of a training tree that is not
    excluded is a training row too; duplicates with the same label count once.

    `form` is the input of models: ``trees``, int64 (N, M, 4) for `training.models.TreeLstm`;
    ``words``, int64 (N, L) as in `Text`.

    Options: `file`; `form`; `classes` 2 or 5; `phrases`; `least`, as in `Text`.
    """

    file: str
    form: Literal["trees", "words"] = "trees"
    classes: Literal[2, 5] = 2
    phrases: bool = False
    least: int = 1

    def __post_init__(self) -> None:
        check_option("least", self.least, self.least >= 1, "1 or more")

    def read(self, files: Files) -> Parts:
        path = files.path(self.file, "file")
        table = read_table(path, ["split", "tree"], "data.options.file")
        trees: dict[str, list[list[Node]]] = {"train": [], "dev": [], "test": []}
        rows = zip(table["split"].to_pylist(), table["tree"].to_pylist(), strict=True)
        for row, (split, text) in enumerate(rows):
            if split not in trees:
                field = f"{path.name}: split[{row}]"
                raise InputError(field, found=repr(split), accepted="train, dev, test")
            trees[split].append(parse(text, f"{path.name}: tree[{row}]"))
        words = ([node.word for node in tree if node.word] for tree in trees["train"])
        vocabulary = Vocabulary.of(words, self.least)
        if self.phrases:
            trees["train"] = list(_distinct(tree for t in trees["train"] for tree in _below(t)))
        train, dev, test = (self._split(split_trees, vocabulary) for split_trees in trees.values())
        return Parts(train, dev, test, self.classes, {"vocabulary": len(vocabulary)})

    def _split(self, trees: Sequence[list[Node]], vocabulary: Vocabulary) -> Split:
        if self.classes == 2:
            trees = [tree for tree in trees if tree[-1].label != 2]
        grades = np.array([tree[-1].label for tree in trees], dtype=np.int64)
        labels = (grades > 2).astype(np.int64) if self.classes == 2 else grades
        if self.form == "trees":
            return Split.with_all_rows(TreeInputs(trees, vocabulary), labels)
        texts = [[node.word for node in tree if node.word] for tree in trees]
        return Split.with_all_rows(Words(texts, vocabulary), labels)


class TreeInputs(Inputs):
    """Trees as integer arrays of word indices, child indices and heights."""

    def __init__(self, trees: Sequence[Sequence[Node]], vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._trees = []
        for tree in trees:
            words = [vocabulary.numbers([node.word])[0] if node.word else 0 for node in tree]
            children = np.array([node[2:] for node in tree], dtype=np.int64)
            self._trees.append(np.column_stack([np.array(words, dtype=np.int64), children]))
        self._keys = keys_of([repr([node[1:] for node in tree]).encode() for tree in trees])

    def __len__(self) -> int:
        return len(self._trees)

    def batch(self, rows: NDArray[np.int64]) -> Tensor:
        trees = [self._trees[row] for row in rows.tolist()]
        nodes = np.zeros((len(trees), max(len(tree) for tree in trees), 4), dtype=np.int64)
        nodes[:, :, 1:] = -1
        for place, tree in enumerate(trees):
            nodes[place, : len(tree)] = tree
        return tensor_of(nodes)

    def keys(self) -> NDArray[np.bytes_]:
        return self._keys


def parse(text: object, where: str) -> list[Node]:
    """Return the nodes of a bracketed tree, children first, the root last.

    Raises
    ------
    InputError: unbalanced brackets, a node without a label of 0 to 4 or without a word or two
        children, or a tree deeper than 500 nodes.
    """
    if not isinstance(text, str):
        raise InputError(where, found=type(text).__name__, accepted="a bracketed tree")
    nodes: list[Node] = []
    # For each open bracket: its label, and its words and child indices so far.
    open_: list[tuple[int, list[int | str]]] = []
    signs = iter(_SIGN.findall(text))
    for sign in signs:
        if sign == "(":
            label = next(signs, "")
            if label not in tuple("01234") or len(open_) == _MAX_DEPTH or (nodes and not open_):
                raise _refusal(where, text)
            open_.append((int(label), []))
        elif not open_:
            raise _refusal(where, text)
        elif sign == ")":
            nodes.append(_close_node(*open_.pop(), nodes, where, text))
            if open_:
                open_[-1][1].append(len(nodes) - 1)
        else:
            open_[-1][1].append(sign)
    if open_ or not nodes:
        raise _refusal(where, text)
    return nodes


def _close_node(
    label: int, children: list[int | str], nodes: Sequence[Node], where: str, text: str
) -> Node:
    match children:
        case [str(word)]:
            return Node(label, word.lower(), -1, -1, 0)
        case [int(left), int(right)]:
            height = 1 + max(nodes[left].height, nodes[right].height)
            return Node(label, "", left, right, height)
    raise _refusal(where, text)


def _refusal(where: str, text: str) -> InputError:
    accepted = "(label word) or (label tree tree), labels 0 to 4"
    return InputError(where, found=repr(text[:60]), accepted=accepted)


def _below(tree: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield the subtree of each node, a contiguous range because children come first."""
    sizes: list[int] = []
    for place, node in enumerate(tree):
        inner = node.left >= 0
        sizes.append(1 + sizes[node.left] + sizes[node.right] if inner else 1)
        first = place + 1 - sizes[place]
        yield [
            child._replace(left=child.left - first, right=child.right - first)
            if child.left >= 0
            else child
            for child in tree[first : place + 1]
        ]


def _distinct(trees: Iterator[list[Node]]) -> Iterator[list[Node]]:
    """Yield trees that differ in structure, words or root label once each."""
    keys = set()
    for tree in trees:
        key = (tree[-1].label, tuple(node[1:] for node in tree))
        if key not in keys:
            keys.add(key)
            yield tree
