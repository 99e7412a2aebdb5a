"""onnxruntime with its telemetry disabled: `from recalib.calibrator.ort import onnxruntime`.

From 1.29 on, the Linux builds of onnxruntime report each start and each session's model to
Microsoft, with a machine id that they store in the user's cache. Models are confidential, and a
server may have no network. The library reads the variable once, when it is loaded, so the variable
must be set before the import.
"""

from __future__ import annotations

import os

from recalib.core.packages import optional_packages

__all__ = ["onnxruntime"]

# A value that the user has set stays.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

with optional_packages("onnxruntime"):
    import onnxruntime
