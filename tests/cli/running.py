"""The command line in this process: the same `main` as the program's, without its second of start.

Tests of signals, ports and standard output start a separate process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from recalib.cli import main
from tests.files.examples import write_npz
from tests.fitting.conftest import draw

__all__ = ["LABELS", "LOGITS", "Cli", "CommandResult"]

#: 300 rows of 4 classes, overconfident by a temperature of 2.
LOGITS, LABELS = draw(300, 4, 2.0)


@dataclass(frozen=True)
class CommandResult:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document on standard output, which must be the only output."""
        assert (self.status, self.err) == (0, "")
        return json.loads(self.out)


class Cli:
    """Runs commands in `folder`, which holds `val.npz`."""

    _parameters: ClassVar[bytes | None] = None

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys
        self.write("val.npz", write_npz(LOGITS, LABELS))

    def __call__(self, *arguments: object) -> CommandResult:
        """Run `recalib ARGUMENTS`."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as excinfo:
            main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        assert isinstance(excinfo.value.code, int)
        return CommandResult(excinfo.value.code, captured.out, captured.err)

    def write(self, name: str, content: bytes) -> None:
        """Put a file into the folder."""
        (self.folder / name).write_bytes(content)

    def fitted(self) -> str:
        """Return the name of the parameter file that `recalib fit val.npz` makes.

        The first call in this process makes it; hundreds of tests use it.
        """
        if Cli._parameters is None:
            assert self("fit", "val.npz", "-o", "t.calib").status == 0
            Cli._parameters = (self.folder / "t.calib").read_bytes()
        self.write("t.calib", Cli._parameters)
        return "t.calib"

    def files(self) -> dict[str, bytes]:
        """Return all files of the folder, hidden ones too."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in self.folder.rglob("*")
            if path.is_file()
        }

    def probabilities(self, name: str) -> Any:
        """Return what `recalib apply` has written."""
        with np.load(self.folder / name) as archive:
            assert archive.files == ["probabilities"]
            return archive["probabilities"]
