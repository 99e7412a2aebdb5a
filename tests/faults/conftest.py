"""The `programs` fixture of the end-to-end tests."""

from __future__ import annotations

from tests.end_to_end.conftest import programs

__all__ = ["programs"]
