"""The Dockerfile installs existing extras, and serving needs no torch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import files
from importlib.util import find_spec

import pytest

from tests.deploy.composed import ROOT, SERVICES
from tests.deploy.images import CUT, DOCKERFILE, SERVING, is_cut, needed, stage

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_FOUND = _PROJECT["tool"]["setuptools"]["packages"]["find"]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint; `make lint-deploy` brings its own")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("name", ["serve", "worker", "worker-gpu"])
def test_every_image_runs_unprivileged_with_a_health_check(name: str) -> None:
    """A fixed user id, one entry point, and no installation after the copy."""
    lines = stage(name)
    assert "\nUSER 10001:10001\n" in lines
    probed = re.search(r'\nHEALTHCHECK .*\n    CMD \["python", "-m", "([a-z.]+)"\]\n', lines)
    assert probed is not None
    assert find_spec(probed[1]) is not None
    assert 'ENTRYPOINT ["recalib"]' in lines
    assert "RUN" not in lines
    assert f'CMD ["{name.partition("-")[0]}"]' in lines


def test_every_built_image_is_a_target_of_the_dockerfile() -> None:
    built = {one["build"]["target"] for one in SERVICES.values() if "build" in one}
    assert built == {"serve", "worker", "worker-gpu"}
    for one in SERVICES.values():
        if "build" in one:
            assert stage(one["build"]["target"])
            assert one["image"].startswith(f"recalib-{one['build']['target']}:")


def test_image_uses_extras_and_versions_of_the_project() -> None:
    extras = set(re.findall(r"--extra (\S+)", DOCKERFILE))
    assert extras <= set(_PROJECT["project"]["optional-dependencies"])
    pinned = re.findall(r"\buv==(\S+)", DOCKERFILE)
    assert pinned == re.findall(r"^uv==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert DOCKERFILE.count("uv pip install -c constraints.txt") == len(
        re.findall(r"-r pyproject", DOCKERFILE)
    )
    # A supported minor version; the tests run on the oldest.
    assert "FROM python:3.11." in DOCKERFILE
    assert _PROJECT["project"]["requires-python"] == ">=3.11"


def test_serving_image_has_no_torch() -> None:
    """Nor plotting packages, transitive requirements included; the worker image has both."""
    serving = needed(SERVING)
    assert {"fastapi", "psycopg-binary", "s3fs", "botocore", "onnxruntime"} <= serving
    besides = {"torch", "lightning-fabric", "pillow", "altair", "vl-convert-python"}
    assert not (besides | {"scikit-learn"}) & serving
    assert besides | {"s3fs"} <= needed({"serve", "s3", "train"})


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
loaded = {getattr(one, "__file__", None) or "" for one in list(sys.modules.values())}
print(*sorted(mapped | loaded), sep="\n")
"""


@pytest.mark.slow
def test_removed_files_are_not_needed_to_serve() -> None:
    """No module or library that reading, calibrating and responding load is removed."""
    done = subprocess.run(
        [sys.executable, "-c", _SERVED], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = [one.partition("/site-packages/")[2] for one in done.stdout.splitlines()]
    assert any(one.startswith("pyarrow/libparquet") for one in loaded)
    assert [one for one in loaded if one and is_cut(one)] == []


def test_every_removal_pattern_matches_a_file() -> None:
    assert len(CUT) > 3
    wide = ("numpy", "onnx", "pyarrow", "pysimdjson")
    everything = [str(one) for name in wide for one in files(name) or ()]
    for pattern in CUT:
        assert any(is_cut(one, [pattern]) for one in everything), pattern


def test_build_context_contains_the_sources_of_the_wheel() -> None:
    """The build context has the packages and the files that pyproject.toml names."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    packages = {
        one.rstrip("*") for one in _PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    files = {"pyproject.toml", "constraints.txt", _PROJECT["project"]["readme"]}
    assert kept == packages | files | set(_PROJECT["project"]["license-files"])
    assert "*" in lines
