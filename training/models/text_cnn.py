"""A convolutional network for text with global max pooling."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from recalib.core.options import check_option


class TextCnn(nn.Module):
    """Embeddings, two convolutions over words, and global max pooling.

    Input: words (N, L), int64, 0 for padding, which the maximum ignores. A text without a word gets
    the offsets of the last layer.

    Options: `vocabulary`, its size with padding and the unknown word; `width`, channels; `kernel`,
    odd, the words in a convolution; `dropout` before the last layer.

    Source: global pooling, Lin et al., Network in network, ICLR 2014, which paper 004 trains on
    documents. The paper starts from GloVe vectors and pools between convolutions, which suits long
    documents; here the vectors are learned and sentences may be short.
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
        mask = (words > 0)[:, None, :]
        # Padding stays zero; otherwise the length of the batch would change the logits of a text.
        x = self.words(words).transpose(1, 2)
        x = torch.relu(self.conv1(x)) * mask
        x = torch.relu(self.conv2(x)) * mask
        return self.head(self.dropout(x.amax(dim=2)))
