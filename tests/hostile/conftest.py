"""The fixtures of the end-to-end tests: programs with a separate home folder."""

from __future__ import annotations

from tests.end_to_end.conftest import programs

__all__ = ["programs"]
