"""Pin what Dockerfile and docker-compose.yml download by digest or hash: `make pin-images`.

Run it where the registries can be reached. Each image of another maker gets the digest that its tag
has now (`postgres:18.4-bookworm@sha256:...`), and torch for the CPU the hashes of PyTorch's index.
Review and commit the changes. A second run follows the tags.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Images with a tag, which our own do not have here; a digest is replaced.
_IMAGE = re.compile(
    r"^((?:FROM|\s+image:) +)([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?(?=\s|$)", re.M
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_TORCH_INDEX = "https://download.pytorch.org/whl/cpu"


def main() -> None:
    """Pin every image and torch."""
    for name in ("Dockerfile", "docker-compose.yml"):
        path = ROOT / name
        path.write_text(_IMAGE.sub(lambda match: match[1] + _pin(match[2]), path.read_text()))
    torch = ROOT / "deploy" / "requirements" / "worker-cpu.txt"
    _run(
        *("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--no-deps"),
        *("--generate-hashes", "--index-url", _TORCH_INDEX, "--python-version", "3.11"),
        *("--python-platform", "x86_64-manylinux_2_28", "--output-file", str(torch), str(torch)),
    )


def _pin(image: str) -> str:
    """Return the image with the digest of its tag."""
    output = _run(
        "docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image
    )
    digest = output.strip()
    if not _DIGEST.fullmatch(digest):
        sys.exit(f"{image}: found {digest!r}; accepted: a digest")
    sys.stdout.write(f"{image}@{digest}\n")
    return f"{image}@{digest}"


def _run(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
