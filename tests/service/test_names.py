"""What REST is tested for, gRPC is tested for under the same name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_HERE = Path(__file__).parent

#: Files of REST and gRPC, how names of REST's tests begin that are meant, and which are about forms
#: that gRPC does not have or about what happens whoever asked.
PAIRS = [
    (
        "test_rest_workflow.py",
        "test_grpc_workflow.py",
        "test_",
        {"test_npy_in_and_out", "test_a_fit_that_cannot_be_done_fails_with_its_reason"},
    ),
    ("test_formats.py", "test_grpc_formats.py", "test_top_k", {"test_top_k_does_not_fit_into_npy"}),
    (
        "test_inference.py",
        "test_grpc_inference.py",
        "test_",
        {
            "test_who_decides_about_bytes",
            "test_the_binary_header_counts_what_was_not_compressed",
            "test_other_paths_and_verbs",
            "test_a_fault_of_ours_is_plain_json_too",
        },
    ),
    ("test_prediction_ids.py", "test_grpc_inference.py", "test_inference", set()),
]

#: What a form of REST is called in gRPC.
_FORMS = {"npy": "raw", "infer_json": "infer_typed"}


@pytest.mark.parametrize(("rest", "grpc", "beginning", "not_here"), PAIRS)
def test_tests_carry_the_names_of_rest_s(
    rest: str, grpc: str, beginning: str, not_here: set[str]
) -> None:
    wanted = {one for one in names(rest) if one.startswith(beginning)}
    assert wanted - {one for one in wanted if _in_grpc(one) in names(grpc)} == not_here


def _in_grpc(name: str) -> str:
    for form, other in _FORMS.items():
        name = name.replace(form, other)
    return name


def names(file: str) -> set[str]:
    body = ast.parse((_HERE / file).read_text()).body
    found = {one.name for one in body if isinstance(one, ast.FunctionDef)}
    return {one for one in found if one.startswith("test_")}
