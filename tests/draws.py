"""How many data sets a simulation draws."""

from __future__ import annotations

import pytest

__all__ = ["few_or_many"]


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """Return the parameter `draws`: `few` in short runs, which detect gross errors, else `many`."""
    return pytest.mark.parametrize("draws", [few, pytest.param(many, marks=pytest.mark.slow)])
