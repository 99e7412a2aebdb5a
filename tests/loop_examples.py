"""The examples of docs/training.md: the network, the data, and a loop each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["loop_example", "run_examples"]

_PAGE = Path(__file__).parents[1] / "docs" / "training.md"


def loop_example(heading: str = "") -> str:
    """Return the code of a section; by default of the network and the data before the first."""
    text = _PAGE.read_text()
    text = text.split(f"\n## {heading}\n")[1] if heading else text
    return "\n".join(re.findall(r"```py(?:thon)?\n(.*?)```", text.split("\n## ")[0], re.DOTALL))


def run_examples(code: str, **names: Any) -> dict[str, Any]:
    """Run network, data and `code` with these names; return all names."""
    exec(loop_example() + code, names)  # noqa: S102
    return names
