"""The pictures of the documentation are those that `examples/pictures.py` draws."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def test_pictures_of_the_documentation_are_current(tmp_path: Path) -> None:
    """Their texts agree: titles, figures, dates. Coordinates may differ by the last digit."""
    runpy.run_path(str(_ROOT / "examples" / "pictures.py"))["draw"](tmp_path)
    drawn = sorted(path.name for path in tmp_path.iterdir())
    assert drawn == ["reliability.svg", "timeline.svg"]
    for name in drawn:
        assert texts(tmp_path / name) == texts(_ROOT / "docs" / "images" / name)


def texts(path: Path) -> list[str]:
    parts = re.findall(r"<text[^>]*>([^<]*)<", path.read_text())
    assert parts
    return parts
