"""Replay a log of predictions through the monitor: states over time, with evidence.

`log.py` reads a log of any size in bounded memory; `run.py` adds its cohorts to a monitor.
"""

from recalib.replay.class_shares import ClassShares
from recalib.replay.log import Log, Survey
from recalib.replay.run import Replay, ReplayOptions, replay

__all__ = ["ClassShares", "Log", "Replay", "ReplayOptions", "Survey", "replay"]
