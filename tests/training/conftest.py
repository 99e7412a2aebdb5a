"""Fixtures shared with `tests/fitting`: fits with short cards."""

from __future__ import annotations

from tests.fitting.conftest import short_cards, whole_cards

__all__ = ["short_cards", "whole_cards"]
