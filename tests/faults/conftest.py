"""Programs on a home of their own, as the end-to-end tests have them."""

from __future__ import annotations

from tests.end_to_end.conftest import programs

__all__ = ["programs"]
