"""Dockerfile: what it installs is what there is, and what serves needs no torch."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import distribution
from importlib.util import find_spec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.composed import ROOT, SERVICES

_FILE = (ROOT / "Dockerfile").read_text()
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_FOUND = _PROJECT["tool"]["setuptools"]["packages"]["find"]


def needed(extras: set[str]) -> set[str]:
    """Return the names of everything that installing us with these extras brings along."""
    found: dict[str, set[str]] = {}
    waiting = [("recalib", extras)]
    while waiting:
        name, wanted = waiting.pop()
        if name in found and wanted <= found[name]:
            continue
        found.setdefault(name, set()).update(wanted)
        for text in distribution(name).requires or ():
            one = Requirement(text)
            marker = one.marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in {"", *found[name]}):
                waiting.append((canonicalize_name(one.name), one.extras))
    return set(found)


def stage(name: str) -> str:
    """Return the lines of a stage."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)(?=^FROM |\Z)", _FILE, re.MULTILINE | re.DOTALL)
    assert found is not None, name
    return found[1]


def test_hadolint_finds_nothing() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint; `make lint-deploy` brings its own")
    done = subprocess.run([hadolint, ROOT / "Dockerfile"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.parametrize("name", ["serve", "worker", "worker-gpu"])
def test_every_image_runs_as_nobody_with_a_probe(name: str) -> None:
    """A user of a fixed number, one entry point, and nothing installed after the copy."""
    lines = stage(name)
    assert "\nUSER 10001:10001\n" in lines
    probed = re.search(r'\nHEALTHCHECK .*\n    CMD \["python", "-m", "([a-z.]+)"\]\n', lines)
    assert probed is not None
    assert find_spec(probed[1]) is not None
    assert 'ENTRYPOINT ["recalib"]' in lines
    assert "RUN" not in lines
    assert f'CMD ["{name.partition("-")[0]}"]' in lines


def test_every_image_of_ours_is_one_of_the_file() -> None:
    built = {one["build"]["target"] for one in SERVICES.values() if "build" in one}
    assert built == {"serve", "worker", "worker-gpu"}
    for one in SERVICES.values():
        if "build" in one:
            assert stage(one["build"]["target"])
            assert one["image"].startswith(f"recalib-{one['build']['target']}:")


def test_extras_and_versions_are_those_of_the_project() -> None:
    extras = set(re.findall(r"--extra (\S+)", _FILE))
    assert extras <= set(_PROJECT["project"]["optional-dependencies"])
    pinned = re.findall(r"\buv==(\S+)", _FILE)
    assert pinned == re.findall(r"^uv==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert _FILE.count("uv pip install -c constraints.txt") == len(
        re.findall(r"-r pyproject", _FILE)
    )
    # A minor version that the project takes; the tests run on the oldest.
    assert "FROM python:3.11." in _FILE
    assert _PROJECT["project"]["requires-python"] == ">=3.11"


def test_what_serves_has_no_torch() -> None:
    """Counted over all that its extras bring along; the worker's bring it."""
    serving = needed({"serve", "s3"})
    assert {"fastapi", "psycopg-binary", "s3fs", "botocore", "onnxruntime"} <= serving
    assert not {"torch", "lightning-fabric", "pillow", "scikit-learn"} & serving
    assert {"torch", "lightning-fabric", "s3fs"} <= needed({"serve", "s3", "train"})


def test_the_context_holds_what_the_wheel_is_made_of() -> None:
    """What .dockerignore does not name is not copied: packages, and what the project names."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    packages = {
        one.rstrip("*") for one in _PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    files = {"pyproject.toml", "constraints.txt", _PROJECT["project"]["readme"]}
    assert kept == packages | files | set(_PROJECT["project"]["license-files"])
    assert "*" in lines
