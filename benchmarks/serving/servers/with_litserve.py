"""LitServe: `with_litserve.py PORT WORKERS`.

Set up by its performance guide: ZeroMQ between the processes (`fast_queue`), as many HTTP
processes as workers, no request tracking, no batching. Bytes are sent as an uploaded file.
"""

import sys

import litserve
import numpy as np
from fastapi import Response
from temperature import calibrated


class Rows(litserve.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request):
        return np.array(request["logits"], np.float32)

    def predict(self, logits):
        return calibrated(logits)

    def encode_response(self, probabilities):
        return {"probabilities": probabilities.tolist()}


class Bytes(Rows):
    def decode_request(self, request):
        return np.frombuffer(request["logits"].file.read(), "<f4").reshape(-1, 1000)

    def encode_response(self, probabilities):
        return Response(probabilities.tobytes(), media_type="application/octet-stream")


if __name__ == "__main__":
    port, workers = map(int, sys.argv[1:])
    server = litserve.LitServer(
        [Rows(api_path="/rows"), Bytes(api_path="/bytes")],
        accelerator="cpu",
        workers_per_device=workers,
        fast_queue=True,
        timeout=False,
    )
    server.run(
        host="127.0.0.1",
        port=port,
        num_api_servers=workers,
        log_level="error",
        access_log=False,
        generate_client_file=False,
    )
