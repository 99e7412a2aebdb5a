"""A FastAPI endpoint with pydantic models, as in its tutorial; bytes are parsed by hand."""

import numpy as np
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from temperature import calibrated

app = FastAPI()


class Question(BaseModel):
    logits: list[list[float]]


class Answer(BaseModel):
    probabilities: list[list[float]]


@app.post("/calibrate")
async def calibrate(question: Question) -> Answer:
    probabilities = calibrated(np.array(question.logits, np.float32))
    return Answer(probabilities=probabilities.tolist())


@app.post("/binary/{classes}")
async def calibrate_bytes(classes: int, request: Request) -> Response:
    logits = np.frombuffer(await request.body(), "<f4").reshape(-1, classes)
    return Response(calibrated(logits).tobytes(), media_type="application/octet-stream")
