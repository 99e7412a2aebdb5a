"""`python -m benchmarks.matrix_strength`: choose the strengths of `matrix` and `dirichlet`.

Held-out negative log-likelihood, in percent above that of temperature scaling on the same rows: the
mean over draws, and the worst draw. Strengths are printed times N, because they are divided by N.
Rows are validation rows of paper 003's ResNet-110, if available, half of them held out (its test
rows are not read), and synthetic rows (`benchmarks.soft_bins`) whose miscalibration no temperature
corrects. Without ties between classes (the first line of each map: the
strengths as published, which do not shrink with N) a class without errors has no best slope.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.data import data_folder
from benchmarks.paper_tables import load
from benchmarks.soft_bins import synthetic
from recalib.fitting.fit import configure_pair
from recalib.fitting.problem import Problem
from recalib.fitting.solvers import solve
from recalib.ops import NumpyOps

__all__ = ["main"]

_Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
_Draws = list[tuple[_Rows, _Rows]]

_PUBLISHED = {"diagonal": 0.0, "intercept": 0.1}
_GRIDS: dict[str, tuple[str, dict[str, tuple[float, ...]]]] = {
    "matrix": (
        "off_diagonal",
        {
            "diagonal": (5_000, 25_000, 100_000),
            "off_diagonal": (200_000, 1_000_000),
            "intercept": (1_000, 5_000),
        },
    ),
    "dirichlet": (
        "strength",
        {
            "diagonal": (1_000, 5_000, 25_000),
            "strength": (1_000_000, 5_000_000),
            "intercept": (1_000, 5_000),
        },
    ),
}


def main() -> None:
    """Print the held-out likelihood by each setting and source."""
    sources = dict(_sources())
    single = {name: _losses(draws, "temperature", {}) for name, draws in sources.items()}
    table = Table("map", "strengths times N", *sources, box=None)
    for column in table.columns[2:]:
        column.justify = "right"

    def add(name: str, setting: dict[str, float], label: str, by_rows: bool = True) -> None:
        cells = []
        for source, draws in sources.items():
            losses = _losses(draws, name, setting, by_rows=by_rows)
            mean = losses.mean() / single[source].mean() - 1
            worst = (losses / single[source] - 1).max()
            cells.append(f"{mean:+.2%} ({worst:+.2%})")
        table.add_row(name, label, *cells)

    for name, (strength, grid) in _GRIDS.items():
        add(name, {**_PUBLISHED, strength: 100.0}, "as published, 100", by_rows=False)
        for values in product(*grid.values()):
            setting = dict(zip(grid, values, strict=True))
            add(name, setting, ", ".join(f"{value:g}" for value in values))
    for worth in (500, 2_500, 12_500):
        l2: dict[str, Any] = {"regularisation": "l2", "strength": worth}
        add("dirichlet", l2, f"l2, {worth}")
    add("structured_matrix", {}, "")
    Console(width=150).print("percent over temperature scaling, mean (worst)", table)


def _losses(
    draws: _Draws, name: str, setting: dict[str, Any], *, by_rows: bool = True
) -> NDArray[np.float64]:
    """Return the held-out NLL of each draw, in nats."""
    losses = []
    for (logits, labels), (held_out, truth) in draws:
        scale = 1 / len(labels) if by_rows else 1.0
        options = {
            key: value if isinstance(value, str) else value * scale
            for key, value in setting.items()
        }
        the_map, objective = configure_pair(name, "nll", options)
        solution = solve(Problem(the_map, objective, logits, labels))
        log_p = the_map.log_probabilities(NumpyOps(), held_out, solution.parameters)
        losses.append(-log_p[np.arange(len(truth)), truth].mean())
    return np.array(losses)


def _sources() -> Iterator[tuple[str, _Draws]]:
    folder = data_folder()
    if (folder / "resnet110-cifar10-val.npz").is_file():
        rows = load(folder)[0]
        z, y = rows.logits.astype(np.float64), rows.labels
        for count in (100, 500, 2_500):
            draws = []
            for seed in range(4):
                order = np.random.default_rng(seed).permutation(len(y))
                fitted, held_out = order[:count], order[2_500:]
                draws.append(((z[fitted], y[fitted]), (z[held_out], y[held_out])))
            yield f"resnet110, N {count}", draws
    for classes, count in ((3, 200), (10, 500), (30, 1_000)):
        draws = []
        for seed in range(2):
            logits, labels = synthetic(count + 4_000, classes, "sharp", seed)
            head, tail = slice(count), slice(count, None)
            draws.append(((logits[head], labels[head]), (logits[tail], labels[tail])))
        yield f"synthetic, K {classes}, N {count}", draws


if __name__ == "__main__":
    main()
