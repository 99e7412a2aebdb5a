"""A network over constituency trees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recalib.options import check_option

__all__ = ["TreeLstm"]


class TreeLstm(nn.Module):
    """Binary constituency Tree-LSTM: the state of a node depends on its two children.

    Trees (N, M, 4), int64: each node's word (0 above the leaves), left child, right child (−1 at
    the leaves) and height (0 at the leaves, −1 for padding); the root has the largest height.
    All nodes of one height are computed at once.

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

    def forward(self, trees: Tensor) -> Tensor:
        word, left, right, height = (column.flatten() for column in trees.unbind(dim=2))
        # Child indices are relative to a tree; these offsets make them relative to the batch.
        first = torch.arange(len(trees), device=trees.device).repeat_interleave(trees.shape[1])
        first = first * trees.shape[1]
        order = torch.argsort(height, stable=True)
        order = order[height[order] >= 0]
        place = torch.empty_like(height)
        place[order] = torch.arange(len(order), device=trees.device)
        counts = torch.bincount(height[order]).tolist()

        leaves = order[: counts[0]]
        cell, gate = self.leaf(self.words(word[leaves])).chunk(2, dim=1)
        cells, states = cell, torch.sigmoid(gate) * torch.tanh(cell)
        computed = counts[0]
        for count in counts[1:]:
            nodes = order[computed : computed + count]
            computed += count
            sides = [place[first[nodes] + child[nodes]] for child in (left, right)]
            gates = self.compose(torch.cat([states[side] for side in sides], dim=1))
            enter, leave, keep_left, keep_right, new = gates.chunk(5, dim=1)
            cell = torch.sigmoid(enter) * torch.tanh(new)
            cell = cell + torch.sigmoid(keep_left) * cells[sides[0]]
            cell = cell + torch.sigmoid(keep_right) * cells[sides[1]]
            cells = torch.cat([cells, cell])
            states = torch.cat([states, torch.sigmoid(leave) * torch.tanh(cell)])

        root = torch.arange(len(trees), device=trees.device) * trees.shape[1]
        root = root + trees[:, :, 3].argmax(dim=1)
        logits: Tensor = self.head(self.dropout(states[place[root]]))
        return logits
