"""Class shares of labelled files, read in parts."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from recalib.files import Input
from recalib.files.fragments import Fragment
from recalib.scale.evaluate import labelled_chunks
from recalib.stats.groups import group_counts


def label_shares(fragments: Iterable[Fragment], input: Input, classes: int) -> NDArray[np.float64]:
    """Return the share of each class among the labels, (K,), in bounded memory.

    Parameters
    ----------
    fragments: of files with labels, see `recalib.files.fragments.list_fragments`.
    input: the kind of values in the files.
    classes: K.

    Raises
    ------
    InputError: a file has no labels.
    """
    counts = np.zeros(classes)
    for fragment in fragments:
        with fragment.open(input) as file:
            for _, labels, _ in labelled_chunks(file):
                counts += group_counts(labels, classes)
    return counts / counts.sum()
