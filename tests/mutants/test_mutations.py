"""The list of mutations matches the code."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutants.mutations import MUTATIONS

_ROOT = Path(__file__).parents[2]


def test_every_mutation_applies_to_the_code() -> None:
    problems = []
    files = {mutation.file: (_ROOT / mutation.file).read_text() for mutation in MUTATIONS}
    original = {file: ast.dump(ast.parse(text)) for file, text in files.items()}
    for mutation in MUTATIONS:
        text = files[mutation.file]
        if text.count(mutation.old) != 1:
            problems.append(f"{mutation.file}: {mutation.old!r} occurs {text.count(mutation.old)}x")
            continue
        mutated = ast.parse(text.replace(mutation.old, mutation.new))
        if ast.dump(mutated) == original[mutation.file]:
            problems.append(f"{mutation.file}: {mutation.new!r} changes nothing")
    assert problems == []


def test_mutations_name_existing_tests_and_cover_the_packages() -> None:
    assert all((_ROOT / mutation.test).is_file() for mutation in MUTATIONS)
    assert len(set(MUTATIONS)) == len(MUTATIONS) >= 60
