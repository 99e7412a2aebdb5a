"""onnxruntime, which tells nobody that it runs: `from recalib.ort import onnxruntime`.

From 1.29 on, its builds for Linux report every start and every session's model to Microsoft, with
a number for the machine that they keep in the user's cache. What somebody calibrates is nobody
else's, and a server may be where nothing gets out. The library looks at this variable once, when it
is loaded: asking it afterwards to be silent is too late for what it has begun.
"""

from __future__ import annotations

import os

__all__ = ["onnxruntime"]

# Whoever has set it to something has decided.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime
