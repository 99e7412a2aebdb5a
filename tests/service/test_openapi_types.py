"""The schemas of names and numbers match the checks of the service."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recalib.core.field_types import NAME, Documented
from recalib.core.resource_names import check_alias
from recalib.errors import InputError
from recalib.registry import is_name
from service.schemas import ALIAS
from tests.service.conftest import Service

pytestmark = pytest.mark.sqlite_only

some_text = st.one_of(
    st.text(max_size=6),
    st.text("aZ09._-", max_size=6),
    st.text("0123456789", max_size=6),
    st.integers(120, 135).map("a".__mul__),
)


def says(described: Documented, text: str) -> bool:
    """Return whether `text` matches the schema keywords."""
    pattern = described.keywords["pattern"].removeprefix("^").removesuffix("$")
    return bool(re.fullmatch(pattern, text)) and len(text) <= described.keywords["maxLength"]


@given(some_text)
@example("a\n")
@example("")
def test_name_schema_matches_the_checks(text: str) -> None:
    assert says(NAME, text) == is_name(text)


@given(some_text)
@example("7")
@example("7a")
@example("²")
def test_alias_schema_matches_the_checks(text: str) -> None:
    """An alias of digits only would be read as a version."""
    try:
        check_alias("alias", text)
    except InputError:
        assert not says(ALIAS, text)
    else:
        assert says(ALIAS, text)


def test_integers_with_a_zero_fraction_are_accepted(ready: Service) -> None:
    """4.0 is the integer 4 in JSON Schema, and some encoders write it."""
    json = {"Content-Type": "application/json"}
    put = ready.client.put
    created = ready.client.post(
        "/v1/models", content=b'{"name": "m", "classes": 4.0}', headers=json
    ).json()
    assert (created["classes"], type(created["classes"])) == (4, int)
    alias = "/v1/models/digits/aliases/next"
    schemas = ready.client.get("/openapi.json").json()["components"]["schemas"]
    classes = schemas["ModelCreate"]["properties"]["classes"]["anyOf"][0]
    assert classes == {"type": "integer", "minimum": 2, "maximum": 1_000_000}
    version = schemas["AliasSet"]["properties"]["version"]
    assert (version["type"], version["minimum"], version["maximum"]) == ("integer", 1, 2**31 - 1)
    assert put(alias, content=b'{"version": 1.0}', headers=json).json()["version"] == 1


@pytest.mark.parametrize("number", ["1.5", "1e400", "true", '"1"', "0.0", "1e300"])
def test_fractions_are_rejected_as_integers(shared: Service, number: str) -> None:
    answer = shared.client.put(
        "/v1/models/digits/aliases/next",
        content=f'{{"version": {number}}}'.encode(),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "version"
