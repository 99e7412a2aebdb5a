"""Small networks of the benchmarks: on fixed features of images, and on word vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mlp(nn.Module):
    """Two hidden layers with batch normalisation on feature vectors (N, D); then dropout."""

    def __init__(
        self, classes: int, *, features: int, width: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(),
        )  # fmt: skip
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.dropout(self.hidden(inputs)))


class WordMean(nn.Module):
    """One hidden layer on the mean word vector; words (N, L), int64, 0 for padding.

    Source: Iyyer et al., Deep unordered composition rivals syntactic methods for text
    classification, ACL 2015. It does not see the order of words.
    """

    def __init__(
        self, classes: int, *, vocabulary: int, width: int = 150, embedding: int = 50
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.hidden = nn.Linear(embedding, width)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        counts = (words > 0).sum(dim=1, keepdim=True).clamp(min=1)
        mean = self.words(words).sum(dim=1) / counts
        return self.head(self.dropout(torch.relu(self.hidden(mean))))


#: Names of these networks on the command line, and the factories that recipes name.
FACTORIES = {
    "mlp": f"{__name__}:Mlp",
    "word_mean": f"{__name__}:WordMean",
}
