"""Comments above the fields of a class: descriptions on pages and in the OpenAPI document."""

from __future__ import annotations

import ast
import inspect


def field_comments(kind: type) -> dict[str, str]:
    """Return the comment `#: ...` above each field of a class and of its bases; "" without one."""
    comments: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        # A generic class with its parameters has no source of its own.
        if base.__module__.partition(".")[0] in ("recalib", "service") and "[" not in base.__name__:
            comments |= _comments(inspect.getsource(base).splitlines())
    return comments


def _comments(lines: list[str]) -> dict[str, str]:
    comments = {}
    for node in ast.iter_child_nodes(ast.parse("\n".join(lines)).body[0]):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first = last = node.lineno - 1
            while lines[first - 1].strip().startswith("#: "):
                first -= 1
            words = [line.strip().removeprefix("#: ") for line in lines[first:last]]
            comments[node.target.id] = " ".join(words)
    return comments
