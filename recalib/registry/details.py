"""Descriptions and tags of models, data sets and versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, func, literal, select

from recalib.errors import InputError

#: Characters of a description and of a tag, and number of tags.
_MAX_DESCRIPTION, _MAX_TAG, _MAX_TAGS = 10_000, 100, 50


def has_tag(connection: Connection, column: Column[Any], tag: str) -> ColumnElement[bool]:
    """Return the condition that a column with a list of tags contains the tag."""
    is_sqlite = connection.dialect.name == "sqlite"
    elements = func.json_each if is_sqlite else func.json_array_elements_text
    rows = elements(column).table_valued("value")
    return select(literal(1)).select_from(rows).where(rows.c.value == tag).exists()


def check_description(description: str) -> str:
    """Return a description; `InputError` if it is too long."""
    if len(description) > _MAX_DESCRIPTION:
        found = f"{len(description):,} characters"
        raise InputError("description", found=found, accepted=f"at most {_MAX_DESCRIPTION:,}")
    return description


def check_tags(tags: Sequence[str]) -> list[str]:
    """Return tags as a list; `InputError` for too many, a repeated, a long or an empty one."""
    different = len(set(tags))
    if len(tags) > _MAX_TAGS or different < len(tags):
        found = f"{len(tags)} tags, {different} of them different"
        raise InputError("tags", found=found, accepted=f"at most {_MAX_TAGS}, all different")
    for index, tag in enumerate(tags):
        if not 0 < len(tag) <= _MAX_TAG:
            accepted = f"1 to {_MAX_TAG} characters"
            raise InputError(f"tags[{index}]", found=f"{len(tag)} characters", accepted=accepted)
    return list(tags)
