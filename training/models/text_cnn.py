"""A convolutional network for text, pooled over all places."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recalib.options import check_option

__all__ = ["TextCnn"]


class TextCnn(nn.Module):
    """Embeddings, two convolutions over words, the largest value of each channel over all places.

    Words (N, L), int64, 0 where a text has ended: those places are never the largest. A text
    without a word gets the offsets of the last layer.

    Options: `vocabulary`, how many words there are, with padding and the unknown word; `width`,
    channels; `kernel`, odd, words that a convolution sees; `dropout` before the last layer.

    Source: global pooling, Lin et al., Network in network, ICLR 2014, which paper 004 trains on
    documents. There words start from GloVe's vectors and pooling between convolutions suits long
    documents; here vectors are learned and sentences may be short.
    """

    def __init__(
        self,
        classes: int,
        *,
        vocabulary: int,
        width: int = 128,
        kernel: int = 5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        check_option("kernel", kernel, kernel % 2 == 1, "an odd number")
        check_option("dropout", dropout, 0 <= dropout < 1, "0 to below 1")
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.conv1 = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.conv2 = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        there = (words > 0)[:, None, :]
        # Places beyond the end are kept at zero, or the padding of a batch would change a text.
        x = self.words(words).transpose(1, 2)
        x = torch.relu(self.conv1(x)) * there
        x = torch.relu(self.conv2(x)) * there
        logits: Tensor = self.head(self.dropout(x.amax(dim=2)))
        return logits
