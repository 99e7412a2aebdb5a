"""Training on every node of a tree."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.training import sst, tree_nodes
from benchmarks.training.running import Finished, finish
from training.data import Split, Splits
from training.data.text import Vocabulary
from training.data.trees import Node, TreeInputs, parse
from training.models import build


def test_every_node_of_a_tree_is_a_training_row() -> None:
    """Nodes that are not neutral have labels in the order of their logits; padding has none."""
    texts = ("(3 (2 a) (4 (0 b) (1 c)))", "(2 d)", "(4 e)")
    trees = [parse(text, "tree") for text in texts]
    vocabulary = Vocabulary(["a", "b", "c", "d", "e"])
    inputs = TreeInputs(trees, vocabulary)
    batches = tree_nodes.NodeBatches(trees, inputs, 2, seed=0)
    assert len(batches) == 2
    labels: dict[int, list[int]] = {0: [], 1: []}
    model = build("tree_lstm", 2, facts={"vocabulary": len(vocabulary)}, width=3, embedding=4)
    for words, nodes, classes in batches:
        assert len(model(words, nodes)) == len(classes)
        for place, label in zip(nodes.nonzero().tolist(), classes.tolist(), strict=True):
            labels[label].append(words[*place, 0].item())
    # b and c are negative; e, and the two inner nodes, which have no word, are positive.
    assert {label: sorted(words) for label, words in labels.items()} == {0: [3, 4], 1: [0, 0, 6]}


def test_training_on_nodes_learns_and_resumes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def trees(count: int) -> list[list[Node]]:
        words = [rng.permutation(["good", "bad", "film", "plot"])[:2] for _ in range(count)]
        grades = {"good": 4, "bad": 0, "film": 2, "plot": 2}
        return [
            parse(f"({max(grades[a], grades[b])} ({grades[a]} {a}) ({grades[b]} {b}))", "tree")
            for a, b in words
        ]

    vocabulary = Vocabulary(["good", "bad", "film", "plot"])
    parts = []
    for count in (200, 60, 60):
        rooted = [tree for tree in trees(count) if tree[-1].label != 2]
        labels = np.array([int(tree[-1].label > 2) for tree in rooted])
        parts.append(Split.with_all_rows(TreeInputs(rooted, vocabulary), labels))
    splits = Splits(*parts, 2, {"vocabulary": len(vocabulary)})
    arguments = "--nodes --epochs 4 --width 8 --embedding 8 --batch 20"
    options = sst.options_of(arguments.split())
    recipe = sst.recipe_for("CE + MMCE", 1, options)
    assert recipe.name != sst.recipe_for("CE + MMCE", 1, sst.options_of([])).name

    def run() -> Finished:
        return tree_nodes.train_on_nodes(recipe, splits, trees(200), None, "CE + MMCE")

    first = finish(tmp_path, splits, "CE + MMCE", recipe, lambda _: 1, run=run)
    right = first.arrays["test_logits"].argmax(axis=1) == first.arrays["test_labels"]
    assert right.mean() > 0.9
    assert len(first.story["history"]) == 4
    again = finish(tmp_path, splits, "CE + MMCE", recipe, lambda _: 1, run=lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    np.testing.assert_array_equal(again.arrays["test_logits"], first.arrays["test_logits"])
