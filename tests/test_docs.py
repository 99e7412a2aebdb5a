"""What the documents list is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from recalib.maps import MAPS
from recalib.objectives import OBJECTIVES

_MAPS_DOCUMENT = Path(__file__).parents[1] / "docs" / "maps.md"


def rows_of(heading: str) -> dict[str, str]:
    """Return the last cell of each row of the table under `heading`, by name."""
    section = _MAPS_DOCUMENT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", section, flags=re.MULTILINE)
    return dict(cells)


def test_every_map_is_listed_with_whether_it_keeps_predictions() -> None:
    listed = rows_of("Maps")
    assert set(listed) == set(MAPS)
    for name, keeps in listed.items():
        if keeps == "`target=top_label`":
            assert MAPS[name](target="top_label").preserves_accuracy  # type: ignore[call-arg]
            assert not MAPS[name](target="one_vs_rest").preserves_accuracy  # type: ignore[call-arg]
        else:
            assert MAPS[name]().preserves_accuracy == (keeps == "yes")


def test_every_objective_is_listed() -> None:
    assert set(rows_of("Objectives")) == set(OBJECTIVES)
