"""Replay a log of predictions through the monitor: states over time, with evidence.

`log.py` reads a log of any size in bounded memory; `run.py` adds its cohorts to a monitor;
`model_log.py` reads it with the cohorts and segments of a model of the service;
`segment_search.py` looks for segments that were not declared.
"""

from recalib.replay.class_shares import ClassShares
from recalib.replay.log import Log
from recalib.replay.model_log import LogCohort, LogSummary, ModelLog, ModelLogOptions
from recalib.replay.run import Replay, ReplayOptions, replay
from recalib.replay.segment_search import SegmentGap, SegmentSearch
from recalib.replay.survey import Survey

__all__ = [
    "ClassShares",
    "Log",
    "LogCohort",
    "LogSummary",
    "ModelLog",
    "ModelLogOptions",
    "Replay",
    "ReplayOptions",
    "SegmentGap",
    "SegmentSearch",
    "Survey",
    "replay",
]
