"""The wheel is reproducible and complete, and works without the source.

One wheel is built from the source and one from the source distribution, which must therefore
contain everything that the wheel needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parent.parent
_UV = Path(sys.executable).with_name("uv")
_EPOCH = "1767225600"  # any time, so long as it is the same


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two wheels of the tracked files, the second one from a source distribution."""
    if not _UV.exists():
        pytest.skip("no uv (make install)")
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git")
    listed = subprocess.run(
        [git, "ls-files", "-z", "--cached"], cwd=_ROOT, capture_output=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a checkout of git")
    wheels: list[Path] = []
    for name, what in (("one", ("--wheel",)), ("other", ())):
        folder = tmp_path_factory.mktemp(name)
        for file in listed.stdout.decode().split("\0"):
            extras = file.startswith(("recalib/", "service/", "training/")) or "/" not in file
            if file and extras and (_ROOT / file).is_file():
                (folder / "source" / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(_ROOT / file, folder / "source" / file)
        subprocess.run(
            [_UV, "build", "--quiet", *what, "--out-dir", folder / "out", folder / "source"],
            env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH},
            check=True,
        )
        wheels += (folder / "out").glob("*.whl")
    return wheels


def test_wheel_build_is_reproducible(wheels: list[Path]) -> None:
    first, second = wheels
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


def test_wheel_contains_every_source_file(wheels: list[Path]) -> None:
    """Including data files such as migrations and the report's page."""
    source = wheels[0].parent.parent / "source"
    with zipfile.ZipFile(wheels[0]) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    stubs = {name for name in packed if name.endswith(".pyi")}
    assert packed - stubs == {
        path.relative_to(source).as_posix()
        for name in ("recalib", "service", "training")
        for path in (source / name).rglob("*")
        if path.is_file() and path.suffix != ".pyi"
    }


def test_installed_wheel_works_without_the_source(wheels: list[Path], tmp_path: Path) -> None:
    installed, work = tmp_path / "installed", tmp_path / "work"
    work.mkdir()
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(installed)

    def run(*command: str) -> str:
        process = subprocess.run(
            [sys.executable, "-P", *command],
            cwd=work,
            env={**os.environ, "PYTHONPATH": str(installed), "RECALIB_HOME": str(work / "home")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    names = ("recalib", "service.app", "service.grpc_server", "training.main")
    text = "; ".join(f"import {name}; print({name}.__file__)" for name in names)
    for line in run("-c", text).splitlines():
        assert Path(line).is_relative_to(installed)
    rng = np.random.default_rng(0)
    for name in ("val", "test"):
        logits = rng.normal(size=(200, 3)) * 4
        labels = (logits / 4 + rng.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(work / f"{name}.npz", logits=logits, labels=labels)
    run("-m", "recalib", "fit", "val.npz", "-o", "x.calib")
    run("-m", "recalib", "apply", "x.calib", "test.npz", "-o", "out.npz")
    with np.load(work / "out.npz") as out:
        assert np.allclose(out["probabilities"].sum(axis=1), 1)
    assert run("-m", "recalib", "keys", "create", "k", "--scope", "fit").startswith("recalib_")
