"""REST and gRPC tests of the same behaviour have the same name.

Only where gRPC has its own code: RPCs of plain operations call the endpoints of REST.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_HERE = Path(__file__).parent

#: File of REST, file of gRPC, prefix of the compared names, and REST tests without a counterpart:
#: they test formats that gRPC lacks, or behaviour that does not depend on the transport.
PAIRS = [
    ("test_formats.py", "test_grpc_formats.py", "test_top_k", {"test_top_k_does_not_fit_into_npy"}),
    (
        "test_inference.py",
        "test_grpc_inference.py",
        "test_",
        {
            "test_output_parameters_override_request_parameters",
            "test_binary_header_has_the_uncompressed_length",
            "test_other_paths_and_methods_are_rejected",
            "test_internal_errors_are_json",
            "test_infer_accepts_the_response_of_another_model",
            "test_large_response_of_another_model_is_parsed_in_pieces",
            "test_query_says_what_the_values_are",
        },
    ),
    ("test_prediction_ids.py", "test_grpc_inference.py", "test_inference", set()),
]

#: Names of REST formats and their names in gRPC.
_FORMS = {"npy": "raw", "infer_json": "infer_typed"}


@pytest.mark.parametrize(("rest", "grpc", "beginning", "not_here"), PAIRS)
def test_grpc_tests_have_the_names_of_rest_tests(
    rest: str, grpc: str, beginning: str, not_here: set[str]
) -> None:
    expected = {name for name in names(rest) if name.startswith(beginning)}
    assert expected - {name for name in expected if _in_grpc(name) in names(grpc)} == not_here


def _in_grpc(name: str) -> str:
    for form, other in _FORMS.items():
        name = name.replace(form, other)
    return name


def names(file: str) -> set[str]:
    body = ast.parse((_HERE / file).read_text()).body
    functions = {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
    return {name for name in functions if name.startswith("test_")}
