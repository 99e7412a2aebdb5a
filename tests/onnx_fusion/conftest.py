"""Short cards."""

from __future__ import annotations

from tests.fitting.conftest import short_cards

__all__ = ["short_cards"]
