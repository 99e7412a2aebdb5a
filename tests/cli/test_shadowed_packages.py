"""A user's own package `training` or `service` in the working folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_SCRIPT = Path(sys.executable).with_name("recalib")


@pytest.mark.parametrize(
    ("package", "command"),
    [
        # It imports torch.
        pytest.param("training", "train", marks=pytest.mark.slow),
        ("service", "serve"),
    ],
)
def test_own_package_is_not_imported(package: str, command: str, tmp_path: Path) -> None:
    """`python -m` names it in an error; the program `recalib` does not see it."""
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise SystemExit('imported')\n")
    data = {"source": "arrays", "options": {"train": "absent.npz", "test": "absent.npz"}}
    recipe = {"data": {**data, "validation": 80}, "model": {"name": "linear"}}
    (tmp_path / "recipe.json").write_text(json.dumps(recipe))
    arguments = {"train": ["recipe.json"], "serve": ["--home", "."]}[command]
    results = [
        subprocess.run(
            [*program, command, *arguments],
            cwd=tmp_path,
            env={**os.environ, "RECALIB_TLS_CERTIFICATE": "absent"},
            capture_output=True,
            text=True,
            check=False,
        )
        for program in ([sys.executable, "-m", "recalib"], [_SCRIPT])
    ]
    assert [result.returncode for result in results] == [2, 2]
    shadowed, usual = (result.stderr for result in results)
    assert f"error: the package '{package}': found {tmp_path / package}" in shadowed
    assert "absent" in usual
