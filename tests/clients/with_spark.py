"""Calibrate and evaluate rows in Spark; prints the results as JSON."""

from __future__ import annotations

import json
import os
import sys

from pyspark.sql import SparkSession

import recalib

os.environ["PYSPARK_PYTHON"] = sys.executable
calibrator = recalib.load(sys.argv[1])
rows = json.load(sys.stdin)
records = [(i, z, y) for i, (z, y) in enumerate(zip(rows["logits"], rows["labels"], strict=True))]

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    .getOrCreate()
)
columns = "row long, logits array<float>, label long"
frame = spark.createDataFrame(records, columns).repartition(3)
calibrated = frame.mapInArrow(calibrator.map_batches, f"{columns}, probabilities array<float>")
ordered = calibrated.orderBy("row").collect()
evaluation = recalib.StreamingEvaluation(calibrator.card.classes)
parts = calibrated.mapInArrow(evaluation.map_batches, "evaluation binary").collect()
evaluations = [recalib.StreamingEvaluation.from_bytes(bytes(row.evaluation)) for row in parts]
answer = {
    "probabilities": [row.probabilities for row in ordered],
    "parts": len(parts),
    "metrics": {name: m.value for name, m in evaluation.merge(*evaluations).finish().items()},
}
sys.stdout.write(json.dumps({"arrow": answer}) + "\n")
