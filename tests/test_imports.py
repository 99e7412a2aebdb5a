"""What starts light stays light, and what is public says so."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parent.parent
_HEAVY = {
    "alembic",
    "torch",
    "sklearn",
    "pandas",
    "onnxruntime",
    "onnx",
    "altair",
    "numpy",
    "scipy",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
    "sqlalchemy",
    "pyarrow",
    "jwt",
    "cryptography",
}


def loaded_by(code: str) -> set[str]:
    """Return the heavy packages that a new interpreter has loaded after `code`."""
    ask = f"import sys\n{code}\nprint(*{_HEAVY!r} & set(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_importing_the_package_costs_nothing() -> None:
    """Its names are loaded when first used."""
    assert loaded_by("import recalib") == set()


def test_a_server_process_never_loads_torch() -> None:
    """Nor what only tests, benchmarks and pictures need; workers do the fitting."""
    loaded = loaded_by("from service.app import create_app; create_app()")
    assert not loaded & {"torch", "sklearn", "pandas", "altair"}


def test_a_server_starts_without_what_only_some_requests_need() -> None:
    """pyarrow is for those with Arrow, and onnxruntime is loaded once the port is open; what checks
    tokens is for servers that trust an issuer. SciPy's parts load when they are first named, which
    takes `import scipy` instead of `import scipy.special`; scipy.stats is the latter's functions
    with names, and a third of all that would be imported.
    """
    loaded = loaded_by("from service.app import create_app; create_app()")
    assert not loaded & {
        "pyarrow", "onnxruntime", "onnx", "scipy.optimize", "scipy.special", "scipy.stats", "jwt",
        "cryptography",
    }  # fmt: skip


def test_a_database_that_is_up_to_date_needs_no_alembic(sqlite_template: Path) -> None:
    """Programs look at the revision by themselves."""
    url = f"sqlite:///{sqlite_template}"
    run = f"from recalib.registry import Registry; Registry({url!r}, 'memory://').migrate()"
    assert "alembic" not in loaded_by(run)


def test_a_worker_that_waits_has_not_loaded_torch() -> None:
    """It is loaded by the first fit that needs gradients."""
    assert not loaded_by("import training.main") & {"torch", "sklearn", "pandas", "altair"}


def test_help_is_quick() -> None:
    """Whoever asks what commands there are does not wait for what none of them has done."""
    run = "from recalib.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_by(run) == set()


#: Programs: nothing is imported from them.
_WITHOUT = {"recalib.cli.__main__"}


def public_modules() -> list[str]:
    """Return every module of ours that is not private."""
    found = []
    for package in ("recalib", "service", "training"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            if {"migrations", "generated"} & set(parts) or any(
                part[:1] == "_" for part in parts[:-1]
            ):
                continue
            found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [name for name in found if name not in _WITHOUT]


def tree_of(module: str) -> ast.Module:
    path = _ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def listed_in(tree: ast.Module) -> list[str] | None:
    """Return `__all__`, which is written out and never computed."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found: list[str] = ast.literal_eval(node.value)
            return found
    return None


def test_the_modules_are_found() -> None:
    assert {
        "recalib",
        "recalib.settings.settings",
        "recalib.maps",
        "service.app",
        "training.main",
    } <= set(public_modules())


@pytest.mark.parametrize("module", public_modules())
def test_public_names_are_listed(module: str) -> None:
    """`__all__` names what exists, once each and in order; a folder without names needs none."""
    tree = tree_of(module)
    names = listed_in(tree)
    if names is None:
        # Nothing but a docstring.
        assert len(tree.body) <= 1, "no __all__"
        return
    assert len(set(names)) == len(names)
    assert names == sorted(names, key=_order)
    loaded = importlib.import_module(module)
    for name in names:
        assert hasattr(loaded, name), name


def _order(name: str) -> tuple[int, str]:
    """Constants, classes, and then the rest, as ruff sorts."""
    bare = name.lstrip("_")
    return (0 if bare.isupper() and len(bare) > 1 else 1 if bare[:1].isupper() else 2), name


@pytest.mark.parametrize("module", public_modules())
def test_what_one_module_takes_from_another_is_public(module: str) -> None:
    """A name that another module imports is in the `__all__` of the one it comes from."""
    for node in ast.walk(tree_of(module)):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.split(".")[0] not in ("recalib", "service", "training"):
            continue
        names = listed_in(tree_of(node.module)) or []
        for one in node.names:
            below = _ROOT.joinpath(*node.module.split("."), one.name)
            is_module = below.is_dir() or below.with_suffix(".py").is_file()
            assert one.name in names or is_module, f"{module} takes {one.name} of {node.module}"
