"""A custom runtime of MLServer, as in its documentation."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
from temperature import calibrated


class Calibrator(MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        logits = NumpyCodec.decode_input(payload.inputs[0])
        output = NumpyCodec.encode_output("probabilities", calibrated(logits))
        return InferenceResponse(model_name=self.name, outputs=[output])
