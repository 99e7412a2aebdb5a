"""Fit, evaluate and apply files of an emulated Google Cloud Storage; write the results as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import fsspec.config
from gcp_storage_emulator.server import create_server

import recalib.scale
from recalib.errors import InputError
from recalib.files.fragments import filesystem_of
from recalib.scale import row_sample


def main() -> None:
    folder = Path(sys.argv[1])
    server = create_server("127.0.0.1", 0, in_memory=True, default_bucket="recalib")
    server.start()
    port = server._api._httpd.socket.getsockname()[1]
    os.environ["STORAGE_EMULATOR_HOST"] = f"http://127.0.0.1:{port}"
    # Otherwise gcsfs asks another interface, which the emulator lacks, for the kind of bucket.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    try:
        (folder / "results.json").write_text(json.dumps(results(folder)))
    finally:
        server.stop()


def results(folder: Path) -> dict[str, Any]:
    fsspec.config.conf["gs"] = {"token": "anon"}
    filesystem = filesystem_of("gs://recalib")[0]  # the only instance
    for path in sorted(folder.glob("*.npz")):
        filesystem.put_file(str(path), f"recalib/in/{path.name}")
    row_sample._SAMPLE_ROWS = 100  # fewer than there are rows
    calibrator = recalib.scale.fit("gs://recalib/in/", "vector")
    evaluation = recalib.scale.evaluate("gs://recalib/in/*.npz", calibrator=calibrator)
    written: list[str] = []
    put_file = filesystem.put_file

    def note(local: str, remote: str) -> None:
        written.append(remote)
        put_file(local, remote)

    filesystem.put_file = note
    runs = []
    for _ in range(2):
        applied = recalib.scale.apply(calibrator, "gs://recalib/in", "gs://recalib/out")
        runs.append((applied.rows, applied.parts, applied.resumed))
    filesystem.rm_file("recalib/out/part-00003.parquet")
    filesystem.invalidate_cache()
    applied = recalib.scale.apply(calibrator, "gs://recalib/in", "gs://recalib/out")
    runs.append((applied.rows, applied.parts, applied.resumed))
    try:
        recalib.scale.evaluate("gs://recalib/missing/")
    except InputError as error:
        missing = str(error)
    return {
        "parameters": {name: value.tolist() for name, value in calibrator.parameters.items()},
        "metrics": {name: estimate.value for name, estimate in evaluation.finish().items()},
        "runs": runs,
        "names": sorted(filesystem.find("recalib/out")),
        "written": written,
        "missing": missing,
    }


if __name__ == "__main__":
    main()
