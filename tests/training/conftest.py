"""Cards of fits are short here too."""

from __future__ import annotations

from tests.fitting.conftest import short_cards, whole_cards

__all__ = ["short_cards", "whole_cards"]
