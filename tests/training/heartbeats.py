"""Heartbeats that a test waits for, however slow the machine is."""

from __future__ import annotations

import threading

import pytest

from training.worker import JobContext

__all__ = ["notice_of_interruption"]


def notice_of_interruption(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set when a heartbeat has read that its job must stop."""
    notice, beat = threading.Event(), JobContext.beat

    def beat_and_tell(context: JobContext, lease_seconds: float) -> None:
        try:
            beat(context, lease_seconds)
        finally:
            if context._interrupted is not None:
                notice.set()

    monkeypatch.setattr(JobContext, "beat", beat_and_tell)
    return notice
