"""Replay a log of predictions through the monitor: states over time, with evidence.

`log.py` reads a log of any size in bounded memory; `run.py` adds its cohorts to a monitor;
`segment_search.py` looks for segments that were not declared.
"""

from recalib.replay.class_shares import ClassShares
from recalib.replay.log import Log, Survey
from recalib.replay.run import Replay, ReplayOptions, replay
from recalib.replay.segment_search import SegmentGap, SegmentSearch

__all__ = [
    "ClassShares",
    "Log",
    "Replay",
    "ReplayOptions",
    "SegmentGap",
    "SegmentSearch",
    "Survey",
    "replay",
]
