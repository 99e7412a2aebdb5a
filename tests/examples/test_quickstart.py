"""The notebook runs, and keeps what its cells print and draw today."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
from numpy.lib.npyio import NpzFile

_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "examples"
_NOTEBOOK = json.loads((_EXAMPLES / "quickstart.ipynb").read_text())


@pytest.mark.slow
@pytest.mark.usefixtures("all_folds")
def test_stored_outputs_are_those_of_the_cells(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tables and texts are the same; pictures have the same texts. `make pictures` stores them."""
    for path in _EXAMPLES.glob("*.npz"):
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    try:
        for cell in _NOTEBOOK["cells"]:
            if cell["cell_type"] == "code":
                value = run("".join(cell["source"]), names)
                data = cell["outputs"][-1]["data"] if cell["outputs"] else {}
                assert output(value) == texts(data)
    finally:
        # The collector would close them during another test, which fails by the warning.
        for archive in names.values():
            if isinstance(archive, NpzFile):
                archive.close()


def test_pictures_of_the_documentation_are_those_of_the_notebook() -> None:
    outputs = [output for cell in _NOTEBOOK["cells"] for output in cell.get("outputs", ())]
    pictures = [o["data"]["image/svg+xml"] for o in outputs if "image/svg+xml" in o["data"]]
    images = [_ROOT / "docs" / "images" / f"{name}.svg" for name in ("reliability", "timeline")]
    assert ["".join(picture) for picture in pictures] == [image.read_text() for image in images]


def run(source: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last line, None of a statement."""
    tree = ast.parse(source)
    if isinstance(tree.body[-1], ast.Expr):
        tree.body[-1] = ast.parse(f"_value = {ast.unparse(tree.body[-1])}").body[0]
    exec(compile(tree, "cell", "exec"), names)  # noqa: S102  (the cells are ours)
    return names.pop("_value", None)


def output(value: Any) -> list[str]:
    """Return the texts of what a notebook shows for a value."""
    if value is None:
        return []
    if hasattr(value, "_repr_svg_"):
        return texts({"image/svg+xml": [value._repr_svg_()]})
    if hasattr(value, "_repr_html_"):
        return texts({"text/html": [value._repr_html_()]})
    return [repr(value)]


def texts(data: dict[str, list[str]]) -> list[str]:
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            return re.findall(r">([^<]+)<", "".join(data[kind]))
    return ["".join(data["text/plain"])] if data else []
