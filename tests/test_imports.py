"""Programs import only what they need, and no private name of another module."""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recalib

_ROOT = Path(__file__).resolve().parent.parent
_HEAVY = {
    "alembic",
    "torch",
    "lightning_fabric",
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
    program = f"import sys\n{code}\nprint(*{_HEAVY!r} & set(sys.modules), file=sys.stderr)"
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return set(process.stderr.splitlines()[-1].split())


@pytest.mark.slow
def test_server_start_loads_no_optional_package() -> None:
    """Workers fit, so a server never loads torch.

    pyarrow serves Arrow requests only, onnxruntime loads once the port is open, and jwt serves
    token issuers only. The code writes `import scipy`, so that SciPy's submodules load at first
    use; scipy.stats alone would be a third of the import time.
    """
    loaded = loaded_by("from service.app import create_app; create_app()")
    assert loaded <= {"numpy", "scipy", "sqlalchemy"}


@pytest.mark.slow
def test_current_database_needs_no_alembic(sqlite_template: Path) -> None:
    """Programs compare the revision without Alembic."""
    url = f"sqlite:///{sqlite_template}"
    run = f"from recalib.registry import Registry; Registry({url!r}, 'memory://').migrate()"
    assert "alembic" not in loaded_by(run)


@pytest.mark.slow
def test_idle_worker_has_not_loaded_torch() -> None:
    """The first fit that needs gradients loads it."""
    assert not loaded_by("import training.main") & {"torch", "sklearn", "pandas", "altair"}


@pytest.mark.slow
def test_invalid_recipe_is_refused_before_fabric_loads(tmp_path: Path) -> None:
    """Its import takes seconds: data, network, loss and map of `calibrate` are checked before."""
    data = {"source": "shapes", "options": {"train": 20, "validation": 20, "test": 20, "size": 16}}
    recipe = {"data": data, "model": {"name": "segmenter"}}
    wrong = {
        "data.source": {"data": {**data, "source": "shape"}},
        "model.name": {"model": {"name": "segmenterr"}},
        "model.options.widt": {"model": {"name": "segmenter", "options": {"widt": 3}}},
        "loss.primary": {"loss": {"primary": "focal", "options": {"gama": 3}}},
        "map": {"calibrate": {"map": "temperatur"}},
    }
    code = "import sys, io, contextlib\nfrom recalib.cli import main\n"
    for number, (field, part) in enumerate(wrong.items()):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({**recipe, **part}))
        code += "with contextlib.redirect_stderr(io.StringIO()) as text:\n    try:\n"
        code += f"        main(['train', {str(path)!r}])\n    except SystemExit: pass\n"
        code += f"assert {f'error: {field}:'!r} in text.getvalue(), text.getvalue()\n"
    assert "lightning_fabric" not in loaded_by(code)


def test_import_and_help_load_nothing_heavy() -> None:
    """Names of the package are loaded at first use, and `recalib --help` answers at once."""
    run = "import recalib\nfrom recalib.cli import main\n"
    run += "try:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    assert loaded_by(run) == set()


def test_notebooks_complete_names_that_are_not_loaded_yet() -> None:
    """`dir` has every public name; a documented module needs no import of its own."""
    code = "import recalib, training\n"
    code += "assert {*recalib.__all__, 'sklearn', 'llm'} <= set(dir(recalib)), dir(recalib)\n"
    code += "assert set(training.__all__) <= set(dir(training))\n"
    code += "assert 'scipy' not in __import__('sys').modules\n"
    code += "recalib.llm.option_logits, recalib.losses.LOSSES, recalib.scale\n"
    # mlflow has an environment of its own.
    code += "assert not hasattr(recalib, 'mlflow') and not hasattr(recalib, 'fitt')"
    loaded_by(code)


#: Entry points: nothing is imported from them.
_ENTRY_POINTS = {"recalib.__main__"}
#: Its package is in an environment of its own: see `tests/clients/test_mlflow.py`.
_FOREIGN = {"recalib.mlflow"}
_PACKAGES = ("recalib", "service", "training")


def public_modules() -> list[str]:
    """Return every module of the three packages."""
    modules = []
    for package in _PACKAGES:
        for path in sorted((_ROOT / package).rglob("*.py")):
            parts = path.relative_to(_ROOT).with_suffix("").parts
            if {"migrations", "generated"} & set(parts) or any(
                part[:1] == "_" for part in parts[:-1]
            ):
                continue
            modules.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [name for name in modules if name not in _ENTRY_POINTS | _FOREIGN]


@functools.cache
def syntax_tree(module: str) -> ast.Module:
    path = _ROOT.joinpath(*module.split("."))
    package = path / "__init__.py"
    file = package if package.exists() else path.with_suffix(".py")
    return ast.parse(file.read_text())


@functools.cache
def listed_names(module: str) -> list[str] | None:
    """Return `__all__`, which must be a literal, or None where there is none."""
    for node in syntax_tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return None


def imported_names(module: str) -> list[str]:
    """Return the names that a package imports from its modules and others."""
    imports = [node for node in ast.walk(syntax_tree(module)) if isinstance(node, ast.ImportFrom)]
    return [alias.name for node in imports for alias in node.names]


def test_modules_are_discovered() -> None:
    assert {
        "recalib",
        "recalib.settings.settings",
        "recalib.maps",
        "service.app",
        "training.main",
    } <= set(public_modules())


def test_documented_names_are_listed() -> None:
    """The `__all__` of a module has every name that a page imports from it."""
    pages = "\n".join(page.read_text() for page in [_ROOT / "README.md", *_ROOT.glob("docs/*.md")])
    imports = re.findall(
        r"^from ((?:recalib|training)[\w.]*) import ([\w, ]+)", pages, re.MULTILINE
    )
    assert len(imports) > 10
    problems = []
    for module, names in imports:
        problems += [f"{module}.{name}" for name in names.split(", ") if not _offers(module, name)]
    assert problems == []


def test_modules_import_only_public_names() -> None:
    """A module imports no private name of another, and of a package only what it lists.

    A package that no page documents has no list: it offers what it imports.
    """
    problems = []
    for module in public_modules():
        for node in ast.walk(syntax_tree(module)):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if node.module.split(".")[0] not in _PACKAGES:
                continue
            is_package = _ROOT.joinpath(*node.module.split(".")).is_dir()
            for alias in node.names:
                is_private = alias.name.startswith("_")
                if is_private or (is_package and not _offers(node.module, alias.name)):
                    problems.append(f"{module} imports {node.module}.{alias.name}")
    assert problems == []


def _offers(module: str, name: str) -> bool:
    """Return whether a module lists a name, or is a package with a module of this name."""
    path = _ROOT.joinpath(*module.split("."), name)
    listed = listed_names(module)
    offered = imported_names(module) if listed is None else listed
    return name in offered or path.is_dir() or path.with_suffix(".py").is_file()


#: The function of the package has the name of the function that it calls.
_FACADES = set(recalib.__all__)
#: Members of two families with one definition in textbooks.
_FAMILIES = {
    "Brier",
    "Focal",
    "KernelError",
    "LabelSmoothing",
    "NegativeLogLikelihood",
    "SoftBinnedEce",
}
#: Of options, logs and traces; of the loops of two projects.
_TWINS = {"configure", "CalibrationCallback"}


def test_names_mean_one_thing() -> None:
    """A public class or function is defined once; a record and its wire form share a name."""
    homes: dict[str, list[str]] = {}
    for module in public_modules():
        if module.startswith("recalib.") and not module.startswith(
            ("recalib.cli", "recalib.client", "recalib.contract")
        ):
            for node in syntax_tree(module).body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_":
                    homes.setdefault(node.name, []).append(module)
    allowed = _FACADES | _FAMILIES | _TWINS
    twins = {name: found for name, found in homes.items() if len(set(found)) > 1}
    assert {name: found for name, found in twins.items() if name not in allowed} == {}
    assert set(twins) >= _FAMILIES | _TWINS, "an exception that is no longer needed"


def test_rows_are_counted_by_group_in_one_module() -> None:
    """`bincount` returns integers for no rows; `recalib.stats.groups` has one answer to that.

    `recalib.ops` is the same functions for NumPy, torch and ONNX.
    """
    files = [path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py")]
    homes = {str(path.relative_to(_ROOT)) for path in files if ".bincount(" in path.read_text()}
    assert homes == {"recalib/ops/numpy_ops.py", "recalib/stats/groups.py"}
