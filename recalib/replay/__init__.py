"""What the monitor would have said of a log of predictions: its states over time, with evidence.

`log.py` reads a log of any size in bounded memory, `run.py` feeds a monitor with its cohorts.
"""

from recalib.replay.class_shares import ClassShares
from recalib.replay.log import Log, Survey
from recalib.replay.run import Replay, ReplayOptions, replay

__all__ = ["ClassShares", "Log", "Replay", "ReplayOptions", "Survey", "replay"]
