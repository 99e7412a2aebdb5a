"""Arguments that several commands share, and what a file to be written must be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from recalib.errors import InputError

__all__ = ["Calib", "Data", "Input", "Json", "Output", "check_target"]

Data = Annotated[
    Path,
    typer.Argument(
        help="Logits with labels: .npz, .parquet, .arrow, .csv, .safetensors, .json.",
        show_default=False,
    ),
]
Calib = Annotated[Path, typer.Argument(help="A parameter file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Input = Annotated[
    Literal["logits", "probabilities"],
    typer.Option(help="What the file holds; never guessed from its values."),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)
]


def check_target(field: str, path: Path, *sources: Path) -> None:
    """Raise `InputError` where no file can be: before the work, not after it."""
    accepted = "a file in a folder that exists"
    try:
        is_folder, exists = path.is_dir(), path.exists()
    except OSError as error:  # a name too long, a folder that may not be looked into
        found = f"{path} ({error.strerror})"
        raise InputError(field, found=found, accepted=accepted) from None
    if is_folder:
        raise InputError(field, found=f"{path} (a folder)", accepted=accepted)
    if not path.parent.is_dir():
        raise InputError(field, found=f"{path} (no folder {path.parent})", accepted=accepted)
    if exists and any(one.exists() and path.samefile(one) for one in sources):
        raise InputError(
            field, found=f"{path}, which is read", accepted="another file than those that are read"
        )
