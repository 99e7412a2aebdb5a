"""Training on every node of a tree at once, by `training.train`, as paper 004 trains on SST.

A batch of trees is one pass through the Tree-LSTM. The objective is that of all its nodes that are
not neutral: a mean over nodes, and MMCE over the pairs of nodes. With `--phrases` the same nodes
are training rows of their own, which computes each subtree again and takes four times as long.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.training.running import Finished, record_run
from recalib.recipe import Recipe
from training import train
from training.data import Split, Splits
from training.data.tables import read_table
from training.data.trees import Node, TreeInputs, parse
from training.models import build

_NEUTRAL = 2


def read_trees(path: Path) -> list[list[Node]]:
    """Return the training trees of a treebank, with those of neutral sentences."""
    table = read_table(path, ["split", "tree"], "trees")
    rows = zip(table["split"].to_pylist(), table["tree"].to_pylist(), strict=True)
    return [parse(text, f"row {row}") for row, (split, text) in enumerate(rows) if split == "train"]


class NodeBatches:
    """Batches (trees, nodes, labels) in a new order each epoch.

    Trees are those of `TreeInputs`; `nodes` (N, M) marks the nodes that are not neutral, and labels
    (n,) are theirs, 1 where positive.
    """

    def __init__(
        self, trees: Sequence[Sequence[Node]], inputs: TreeInputs, size: int, seed: int
    ) -> None:
        self._grades = [np.array([node.label for node in tree]) for tree in trees]
        self._inputs, self._size = inputs, size
        self._rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return -(-len(self._inputs) // self._size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        order = self._rng.permutation(len(self._inputs))
        for start in range(0, len(order), self._size):
            rows = order[start : start + self._size]
            trees = self._inputs.batch(rows)
            grades = np.full(trees.shape[:2], _NEUTRAL)
            for place, row in enumerate(rows.tolist()):
                grades[place, : len(self._grades[row])] = self._grades[row]
            nodes = grades != _NEUTRAL
            labels = (grades[nodes] > _NEUTRAL).astype(np.int64)
            yield trees, torch.from_numpy(nodes), torch.from_numpy(labels)


@dataclass(frozen=True)
class RootBatches:
    """Batches (trees, labels) of sentences, in their order."""

    split: Split
    size: int = 256

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        split = self.split
        for start in range(0, len(split), self.size):
            part = split.subset(range(start, min(start + self.size, len(split))))
            yield part.inputs.batch(part.rows), torch.from_numpy(part.labels)


def train_on_nodes(
    recipe: Recipe,
    splits: Splits,
    trees: Sequence[Sequence[Node]],
    initial_weights: dict[str, Tensor] | None,
    objective: str,
) -> Finished:
    """Train by a recipe on all nodes of `trees`, and keep the epoch of the best accuracy."""
    inputs = splits.train.inputs
    assert isinstance(inputs, TreeInputs)
    torch.manual_seed(recipe.seed)
    model = build(recipe.model.name, splits.classes, facts=splits.facts, **recipe.model.options)
    model.load_state_dict(initial_weights or {}, strict=False)
    batches = NodeBatches(
        trees, TreeInputs(trees, inputs.vocabulary), recipe.batch_size, recipe.seed
    )
    best = _BestEpoch(model)
    loss = recipe.loss
    arrays: dict[str, NDArray[Any]] = {}
    with record_run(objective, recipe, splits) as story:
        trained = train(
            model, {"train": batches, "validation": RootBatches(splits.validation)},
            loss=loss.primary, options=loss.options, secondary=loss.secondary,
            secondary_options=loss.secondary_options if loss.secondary else None, beta=loss.beta,
            optimiser=recipe.optimiser.model_dump(mode="json"), epochs=recipe.epochs,
            seed=recipe.seed, device=recipe.device, progress=best,
        )  # fmt: skip
        story["history"] = trained.history
        arrays = best.arrays(splits)
    story["device"] = recipe.device
    return Finished(story, arrays)


class _BestEpoch:
    """Keeps the weights of the epoch with the highest validation accuracy."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._accuracy, self._weights = -1.0, model.state_dict()

    def __call__(self, record: dict[str, Any]) -> None:
        accuracy = record["validation"]["accuracy"]
        if accuracy > self._accuracy:
            self._accuracy, self._weights = accuracy, copy.deepcopy(self._model.state_dict())

    def arrays(self, splits: Splits) -> dict[str, NDArray[Any]]:
        """Return logits and labels of the validation and test sentences."""
        self._model.load_state_dict(self._weights)
        device = next(self._model.parameters()).device
        arrays: dict[str, NDArray[Any]] = {}
        with torch.inference_mode():
            for name, split in (("validation", splits.validation), ("test", splits.test)):
                logits = [self._model(batch.to(device)).cpu() for batch, _ in RootBatches(split)]
                arrays[f"{name}_logits"] = torch.cat(logits).numpy()
                arrays[f"{name}_labels"] = split.labels
        return arrays
