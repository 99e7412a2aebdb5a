"""Run the notebook `quickstart.ipynb`, and save its pictures for the documentation.

    make pictures

The notebook keeps what its cells print and draw. Its first picture becomes
`docs/images/reliability.svg`, its second one `docs/images/timeline.svg`.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbclient import NotebookClient

_NOTEBOOK = Path(__file__).resolve().parent / "quickstart.ipynb"
_IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
_NAMES = ("reliability.svg", "timeline.svg")


def main() -> None:
    """Run all cells, save the notebook, and write its pictures."""
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    # Without times, so that a second run changes nothing.
    client = NotebookClient(
        notebook, record_timing=False, resources={"metadata": {"path": str(_NOTEBOOK.parent)}}
    )
    client.execute()
    nbformat.write(notebook, _NOTEBOOK)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pictures = [output.data for output in outputs if "image/svg+xml" in output.get("data", {})]
    for name, data in zip(_NAMES, pictures, strict=True):
        (_IMAGES / name).write_text(data["image/svg+xml"])


if __name__ == "__main__":
    main()
