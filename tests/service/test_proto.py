"""The generated code matches `proto/`."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.requirements import missing

_ROOT = Path(__file__).resolve().parent.parent.parent
_GENERATED = _ROOT / "service" / "grpc" / "generated"


def test_generated_code_is_current(tmp_path: Path) -> None:
    """Compared byte by byte, with the pinned generator; `make proto` writes the code."""
    if importlib.util.find_spec("grpc_tools") is None:
        missing("proto", "no grpcio-tools (make install)")
    pinned = re.search(r"^grpcio-tools==(.*)$", (_ROOT / "constraints.txt").read_text(), re.M)
    if pinned is None or version("grpcio-tools") != pinned[1]:
        missing("proto", "another grpcio-tools than constraints.txt pins")
    folder = _ROOT / "proto"
    sources = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.proto"))
    assert len(sources) == 2
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *sources,
        ],
        check=True,
    )  # fmt: skip
    generated = {
        path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*_pb2.py*")
    }
    committed = {
        path.relative_to(_GENERATED): path.read_bytes() for path in _GENERATED.rglob("*_pb2.py*")
    }
    assert len(generated) == 4
    assert generated == {path: text for path, text in committed.items() if path.suffix != ".pyc"}
