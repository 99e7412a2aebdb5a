"""A network over constituency trees."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from recalib.core.options import check_option


class TreeLstm(nn.Module):
    """Binary constituency Tree-LSTM: the state of a node depends on its two children.

    Trees (N, M, 4), int64: each node's word (0 above the leaves), left child, right child (−1 at
    the leaves) and height (0 at the leaves, −1 for padding); the root has the largest height.
    All nodes of one depth are computed at once.

    A leaf with vector x has c = W x, h = σ(O x) tanh c. Above, with children l and r,
    c = i·u + f_l·c_l + f_r·c_r and h = o·tanh c, where i, o, f_l, f_r are sigmoids and u a tanh of
    linear functions of (h_l, h_r).

    Options: `vocabulary`, its size with padding and the unknown word; `width` of states;
    `embedding`, width of word vectors; `dropout` before the last layer.

    Source: Tai, Socher and Manning, Improved semantic representations from tree-structured long
    short-term memory networks, ACL 2015, eqs. 9 to 14, with two children; paper 004 trains it.
    The paper starts from GloVe vectors; here they are learned.
    """

    def __init__(
        self,
        classes: int,
        *,
        vocabulary: int,
        width: int = 150,
        embedding: int = 300,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_option("dropout", dropout, 0 <= dropout < 1, "0 to below 1")
        self.words = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.leaf = nn.Linear(embedding, 2 * width)
        self.compose = nn.Linear(2 * width, 5 * width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, trees: Tensor, nodes: Tensor | None = None) -> Tensor:
        """Return the logits (N, K) of the roots, or of the nodes that `nodes` (N, M) marks."""
        size = trees.shape[1]
        word, left, right, height = (column.flatten() for column in trees.unbind(dim=2))
        # Child indices are relative to a tree; these offsets make them relative to the batch.
        first = torch.arange(len(trees), device=trees.device).repeat_interleave(size) * size
        roots = first[::size] + height.view(len(trees), size).argmax(dim=1)
        levels = _levels(roots, left + first, right + first, is_inner=left >= 0)
        states = self._states(levels, word)
        if nodes is None:
            chosen = states[0]
        else:
            order = torch.cat([level.nodes for level in levels])
            place = torch.empty_like(word)
            place[order] = torch.arange(len(order), device=trees.device)
            chosen = torch.cat(states)[place[nodes.flatten()]]
        return self.head(self.dropout(chosen))

    def _states(self, levels: list[_Level], word: Tensor) -> list[Tensor]:
        """Return the states of the nodes of each level."""
        leaves = [level.nodes[~level.is_inner] for level in levels]
        counts = [len(nodes) for nodes in leaves]
        cell, gate = self.leaf(self.words(word[torch.cat(leaves)])).chunk(2, dim=1)
        leaf_cells = torch.split(cell, counts)
        leaf_states = torch.split(torch.sigmoid(gate) * torch.tanh(cell), counts)
        # The deepest level has leaves only.
        cells, states = leaf_cells[-1], [leaf_states[-1]]
        for number in range(len(levels) - 2, -1, -1):
            inner_cell, inner_state = self._compose(cells, states[-1])
            # The place of each node of this level among its inner nodes and then its leaves.
            place = torch.argsort(torch.argsort(~levels[number].is_inner, stable=True))
            cells = torch.cat([inner_cell, leaf_cells[number]])[place]
            states.append(torch.cat([inner_state, leaf_states[number]])[place])
        return states[::-1]

    def _compose(self, cells: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cells and states of parents; the left children come first, then the right."""
        cell_left, cell_right = cells.chunk(2)
        gates = self.compose(torch.cat(states.chunk(2), dim=1))
        enter, leave, keep_left, keep_right, new = gates.chunk(5, dim=1)
        cell = torch.sigmoid(enter) * torch.tanh(new)
        cell = cell + torch.sigmoid(keep_left) * cell_left + torch.sigmoid(keep_right) * cell_right
        return cell, torch.sigmoid(leave) * torch.tanh(cell)


class _Level(NamedTuple):
    """Nodes of equal depth: the left children of the inner nodes above, then the right ones."""

    nodes: Tensor
    is_inner: Tensor


def _levels(roots: Tensor, left: Tensor, right: Tensor, is_inner: Tensor) -> list[_Level]:
    """Return the nodes by depth, from the roots. A level depends on the next one alone."""
    levels = [_Level(roots, is_inner[roots])]
    while len(parents := levels[-1].nodes[levels[-1].is_inner]):
        children = torch.cat([left[parents], right[parents]])
        levels.append(_Level(children, is_inner[children]))
    return levels
