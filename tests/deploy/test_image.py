"""The Dockerfile installs existing extras, and serving needs no torch."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.deploy.composed import ROOT, SERVICES
from tests.deploy.images import CUT, DOCKERFILE, SERVING, is_cut, needed, stage
from tests.supply.image_requirements import FOLDER, read_requirements
from tests.supply.requirements import pins

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_PACKAGES = _PROJECT["tool"]["setuptools"]["packages"]["find"]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint; `make lint-deploy` installs a copy")
    process = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, check=False)
    assert process.returncode == 0, process.stdout.decode()


@pytest.mark.parametrize("name", ["serve", "worker", "worker-gpu"])
def test_every_image_runs_unprivileged_with_a_health_check(name: str) -> None:
    """A fixed user id, one entry point, and no installation after the copy."""
    lines = stage(name)
    assert "\nUSER 10001:10001\n" in lines
    health_check = re.search(r'\nHEALTHCHECK .*\n    CMD \["python", "-m", "([a-z.]+)"\]\n', lines)
    assert health_check is not None
    assert find_spec(health_check[1]) is not None
    assert 'ENTRYPOINT ["recalib"]' in lines
    assert "RUN" not in lines
    assert f'CMD ["{name.partition("-")[0]}"]' in lines


def test_every_built_image_is_a_target_of_the_dockerfile() -> None:
    targets = {service["build"]["target"] for service in SERVICES.values() if "build" in service}
    assert targets == {"serve", "worker", "worker-gpu"}
    for service in SERVICES.values():
        if "build" in service:
            assert stage(service["build"]["target"])
            assert service["image"].startswith(f"recalib-{service['build']['target']}:")


def requirements(name: str) -> dict[str, str]:
    """Return the requirements of a file of deploy/requirements, by canonical name."""
    return read_requirements((FOLDER / name).read_text())


@pytest.mark.parametrize("name", ["build.txt", "serve.txt", "worker.txt", "worker-gpu.txt"])
def test_every_package_of_an_image_is_pinned_with_hashes(name: str) -> None:
    """At the versions that the tests run."""
    packages = requirements(name)
    assert packages
    lines = (FOLDER / name).read_text().splitlines()
    assert len(packages) == sum("==" in line for line in lines)
    for package, block in packages.items():
        assert block.splitlines()[0] == f"{package}{pins()[package].specifier} \\"
        assert re.fullmatch(r".*\n(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+", block), package


def test_images_install_what_their_extras_require() -> None:
    """torch for the CPU comes from another index, and has a separate file."""
    cuda = set(requirements("worker-gpu.txt")) - {"torch"}
    serve = set(requirements("serve.txt"))
    worker = serve | set(requirements("worker.txt")) | {"torch"}
    assert serve == needed(SERVING) - {"recalib"}
    assert worker == needed({*SERVING, "train"}) - {"recalib"} - cuda
    assert {"triton", "nvidia-cublas"} <= cuda
    (cpu,) = re.findall(r"^torch==([\w.]+)\+cpu", (FOLDER / "worker-cpu.txt").read_text(), re.M)
    assert f"=={cpu}" == str(pins()["torch"].specifier)
    assert set(requirements("build.txt")) == {"setuptools", "uv"}


def test_image_builds_check_hashes() -> None:
    """Every installation, except of our own wheel and of torch for the CPU."""
    text = DOCKERFILE.replace("\\\n", " ")
    installs = re.findall(r"(?:pip install|pip wheel) [^&\n]*", text)
    assert len(installs) == 9
    for command in installs:
        assert "--no-deps" in command
        is_ours = command.rstrip().endswith(("/wheel/*.whl", "--wheel-dir /wheel ."))
        is_torch = "-r /requirements/worker-cpu.txt" in command
        assert ("--require-hashes" in command) != (is_ours or is_torch), command
    assert "--no-build-isolation" in text
    names = re.findall(r"^COPY deploy/requirements/(\S+)", DOCKERFILE, re.MULTILINE)
    assert set(names) == {path.name for path in FOLDER.iterdir()}
    # A supported minor version; the tests run on the oldest.
    assert "FROM python:3.11." in DOCKERFILE
    assert _PROJECT["project"]["requires-python"] == ">=3.11"


@pytest.mark.slow
def test_installation_refuses_another_hash(tmp_path: Path) -> None:
    """With the options of the Dockerfile, on one small package."""
    block = requirements("serve.txt")["idna"]
    uv = Path(sys.executable).with_name("uv")
    for name, text, succeeds in [
        ("right", block, True),
        ("wrong", re.sub(r"sha256:[0-9a-f]{4}", "sha256:0000", block), False),
        ("none", block.splitlines()[0].rstrip("\\ "), False),
    ]:
        (tmp_path / f"{name}.txt").write_text(text)
        command = [uv, "pip", "install", "--no-deps", "--require-hashes", "--target"]
        process = subprocess.run(
            [*command, tmp_path / name, "-r", tmp_path / f"{name}.txt"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (process.returncode == 0) is succeeds, process.stderr
        assert (tmp_path / name / "idna").exists() is succeeds


_FAKE_DOCKER = """#!/bin/sh
[ "$1 $2 $3" = "buildx imagetools inspect" ] || exit 1
for image; do :; done
echo "sha256:$(printf %s "$image" | sha256sum | cut -d ' ' -f 1)"
"""
_FAKE_UV = """#!/bin/sh
for file; do :; done
printf 'torch==2.13.0+cpu \\\n    --hash=sha256:%064d\n' 0 > "$file"
"""


def test_pin_images_adds_the_digest_of_every_image(tmp_path: Path) -> None:
    """Of other makers; twice gives the same files, and a moved tag another digest."""
    folder = tmp_path / "copy" / "deploy"
    shutil.copytree(FOLDER, folder / "requirements")
    shutil.copy(ROOT / "deploy" / "pin_images.py", folder)
    files = [folder.parent / name for name in ("Dockerfile", "docker-compose.yml")]
    for file in files:
        shutil.copy(ROOT / file.name, file)
    for name, text in (("docker", _FAKE_DOCKER), ("uv", _FAKE_UV)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, folder / "pin_images.py"]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    pinned = [file.read_text() for file in files]
    images = re.findall(r"(?:^FROM|image:) +(\S+:\S+)", "".join(pinned), re.MULTILINE)
    foreign = [image for image in images if not image.startswith("recalib-")]
    assert len(foreign) == 6
    for image in foreign:
        name, _, digest = image.partition("@sha256:")
        assert digest == hashlib.sha256(name.encode()).hexdigest()
    assert not any("@" in image for image in images if image not in foreign)
    for file, text in zip(files, pinned, strict=True):
        assert re.sub(r"@sha256:[0-9a-f]{64}", "", text) == (ROOT / file.name).read_text()
    assert "--hash=sha256:" in (folder / "requirements" / "worker-cpu.txt").read_text()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    assert [file.read_text() for file in files] == pinned


def test_serving_image_has_no_torch() -> None:
    """Nor plotting packages, transitive requirements included; the worker image has both."""
    serving = needed(SERVING)
    assert {"fastapi", "psycopg-binary", "s3fs", "botocore", "onnxruntime"} <= serving
    worker_only = {"torch", "lightning-fabric", "pillow", "altair", "vl-convert-python"}
    assert not (worker_only | {"scikit-learn"}) & serving
    assert worker_only | {"s3fs"} <= needed({"serve", "s3", "train"})


_SERVED = r"""
import io, sys
from pathlib import Path
from recalib.files import read
from service.app import create_app
from service.serving.loaded_calibrators import warm_up
from tests.files.examples import WRITERS, example
create_app()
warm_up()
for format, write in WRITERS.values():
    read(io.BytesIO(write(*example(5))), format=format, labels="optional")
import pyarrow.parquet, s3fs, service.access.oidc_tokens, service.grpc_server
mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
loaded = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
print(*sorted(mapped | loaded), sep="\n")
"""


@pytest.mark.slow
def test_removed_files_are_not_needed_to_serve() -> None:
    """No module or library that reading, calibrating and responding load is removed."""
    process = subprocess.run(
        [sys.executable, "-c", _SERVED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = [file.partition("/site-packages/")[2] for file in process.stdout.splitlines()]
    assert any(file.startswith("pyarrow/libparquet") for file in loaded)
    assert [file for file in loaded if file and is_cut(file)] == []


def test_every_removal_pattern_matches_a_file() -> None:
    assert len(CUT) > 3
    wide = ("numpy", "onnx", "pyarrow", "pysimdjson")
    everything = [str(file) for name in wide for file in files(name) or ()]
    for pattern in CUT:
        assert any(is_cut(file, [pattern]) for file in everything), pattern


def test_build_context_contains_the_sources_of_the_wheel() -> None:
    """The packages, the files that pyproject.toml names, and the program of backups."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    included = {line[1:] for line in lines if line.startswith("!")}
    packages = {
        pattern.rstrip("*")
        for pattern in _PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    files = {"pyproject.toml", "deploy/requirements", _PROJECT["project"]["readme"]}
    files.add("deploy/backup.sh")
    assert included == packages | files | set(_PROJECT["project"]["license-files"])
    assert "*" in lines
