"""Each operation is declared in one place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import service
from service.grpc_server import RpcServer  # noqa: F401  (declares the RPCs without routes)
from service.operations import OPERATIONS

_FOLDER = Path(service.__file__).parent
#: Calls with the names of actions in the audit trail and scopes of idempotency keys: stored data.
_STORING = ("tx.audit.record(", "_audit(", "run_once(")


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for file in _FOLDER.rglob("*.py"):
        yield file, ast.parse(file.read_text())


def test_each_operation_is_declared_once() -> None:
    declared = Counter(
        function.name
        for _, module in _modules()
        for function in ast.walk(module)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in function.decorator_list
        if ast.unparse(decorator).startswith(("operation(", "router.operation("))
    )
    assert declared == Counter(OPERATIONS.keys())


def test_no_other_place_names_an_operation() -> None:
    """A table by the names of operations would repeat the declarations."""
    names = {name for name in OPERATIONS if "_" in name}
    places = []
    for file, module in _modules():
        stored = {
            id(argument)
            for call in ast.walk(module)
            if isinstance(call, ast.Call) and ast.unparse(call).startswith(_STORING)
            for argument in call.args
        }
        places += [
            f"{file.relative_to(_FOLDER)}:{node.lineno}: {node.value}"
            for node in ast.walk(module)
            if isinstance(node, ast.Constant) and node.value in names and id(node) not in stored
        ]
    assert places == []
