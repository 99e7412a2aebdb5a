"""BentoML: asynchronous endpoints, which avoid a thread; no access log, metrics or tracing.

Bytes are sent as a file, the only way that it supports.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import bentoml
import numpy as np
from bentoml.validators import ContentType, DType
from starlette.responses import Response
from temperature import calibrated

Floats = Annotated[np.ndarray, DType("float32")]


@bentoml.service(
    workers=int(os.environ["WORKERS"]),
    logging={"access": {"enabled": False}},
    metrics={"enabled": False},
    monitoring={"enabled": False},
)
class Calibrator:
    @bentoml.api
    async def calibrate(self, logits: Floats) -> Floats:
        return calibrated(logits)

    @bentoml.api
    async def calibrate_bytes(
        self, logits: Annotated[Path, ContentType("application/octet-stream")], /
    ) -> Any:
        rows = np.frombuffer(logits.read_bytes(), "<f4").reshape(-1, 1000)
        return Response(calibrated(rows).tobytes(), media_type="application/octet-stream")
