"""The generated code is what the generator makes of `proto/`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent.parent
_GENERATED = _ROOT / "service" / "grpc" / "generated"


def test_generating_again_gives_the_same(tmp_path: Path) -> None:
    """Byte by byte, with the version that made it; `make proto` writes it."""
    if importlib.util.find_spec("grpc_tools") is None:
        assert "proto" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip("no grpcio-tools (make install)")
    pinned = re.search(r"^grpcio-tools==(.*)$", (_ROOT / "constraints.txt").read_text(), re.M)
    if pinned is None or version("grpcio-tools") != pinned[1]:
        assert "proto" not in os.environ.get("RECALIB_TESTS_REQUIRE", "")
        pytest.skip("another grpcio-tools than constraints.txt pins")
    folder = _ROOT / "proto"
    sources = sorted(str(one.relative_to(folder)) for one in folder.rglob("*.proto"))
    assert len(sources) == 2
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *sources,
        ],
        check=True,
    )  # fmt: skip
    made = {one.relative_to(tmp_path): one.read_bytes() for one in tmp_path.rglob("*_pb2.py*")}
    kept = {one.relative_to(_GENERATED): one.read_bytes() for one in _GENERATED.rglob("*_pb2.py*")}
    assert len(made) == 4
    assert made == {path: text for path, text in kept.items() if path.suffix != ".pyc"}
