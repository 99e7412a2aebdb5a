"""Write deploy/requirements, the hashed packages of the images: `make image-requirements`.

Versions are those of constraints.txt, hashes those of PyPI at the time of the command. An image
installs `serve.txt`, and a worker the packages that it adds, without resolving dependencies again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.supply.requirements import ROOT, pins

__all__ = ["FOLDER", "main", "read_requirements"]

FOLDER = ROOT / "deploy" / "requirements"
_SERVE = ("serve", "s3", "telemetry")
#: torch and its libraries for CUDA. The worker for the CPU has another build of torch.
_CUDA = re.compile(r"torch|triton|(nvidia|cuda)-.*")
#: What builds the images: the installer and the build backend.
_BUILD = ("setuptools", "uv")
_HEADER = "# Written by `make image-requirements`; the Dockerfile checks the hashes.\n"


def read_requirements(text: str) -> dict[str, str]:
    """Return the lines of each requirement, hashes included, by canonical name."""
    blocks = re.findall(r"^\S+==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    return {canonicalize_name(block.partition("==")[0]): block for block in blocks}


def main() -> None:
    """Write every file."""
    serve = _compile([str(ROOT / "pyproject.toml"), *_extras(_SERVE)])
    worker = _compile([str(ROOT / "pyproject.toml"), *_extras((*_SERVE, "train"))])
    build = _compile(["-"], "".join(f"{pins()[name]}\n" for name in _BUILD))
    added = {name: block for name, block in worker.items() if name not in serve}
    _write("build.txt", build)
    _write("serve.txt", serve)
    _write("worker.txt", {n: block for n, block in added.items() if not _CUDA.fullmatch(n)})
    _write("worker-gpu.txt", {n: block for n, block in added.items() if _CUDA.fullmatch(n)})


def _extras(names: tuple[str, ...]) -> list[str]:
    return [word for name in names for word in ("--extra", name)]


def _compile(arguments: list[str], requirements: str = "") -> dict[str, str]:
    uv = Path(sys.executable).with_name("uv")
    # The Python and the platform of the images.
    options = ["--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"]
    options += [
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--generate-hashes",
        "--no-emit-index-url",
    ]
    constraints = ["-c", str(ROOT / "constraints.txt")]
    done = subprocess.run(
        [uv, "pip", "compile", *options, *constraints, *arguments],
        input=requirements,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return read_requirements(done.stdout)


def _write(name: str, blocks: dict[str, str]) -> None:
    (FOLDER / name).write_text(_HEADER + "".join(blocks[key] for key in sorted(blocks)))


if __name__ == "__main__":
    main()
