"""KServe's Python server: `with_kserve.py --http_port PORT --workers WORKERS ...`.

gRPC and the latency log line per request are off.
"""

import numpy as np
import uvicorn
from kserve import InferOutput, InferResponse, Model, ModelServer
from kserve.protocol.rest.multiprocess.server import RESTServerProcess
from temperature import calibrated


class OnLoopback(uvicorn.Config):
    """The server, limited to 127.0.0.1: it has no setting for the host."""

    def __init__(self, *args, **options):
        super().__init__(*args, **{**options, "host": "127.0.0.1"})


uvicorn.Config = OnLoopback
# Workers are killed if they do not answer for five seconds, and they answer only after their
# imports: on a busy machine they would be restarted for ever.
RESTServerProcess.is_alive.__defaults__ = (120,)


class Calibrator(Model):
    def load(self):
        self.ready = True
        return True

    async def predict(self, payload, headers=None, response_headers=None):
        if isinstance(payload, dict):  # KServe's V1 protocol
            return {"predictions": calibrated(np.array(payload["instances"], np.float32)).tolist()}
        binary = payload.use_binary_outputs
        probabilities = calibrated(payload.inputs[0].as_numpy())
        output = InferOutput("probabilities", list(probabilities.shape), "FP32")
        output.set_data_from_numpy(probabilities, binary_data=binary)
        return InferResponse(payload.id, self.name, [output], use_binary_outputs=binary)


if __name__ == "__main__":
    calibrator = Calibrator("calibrator")
    calibrator.load()
    ModelServer().start([calibrator])
