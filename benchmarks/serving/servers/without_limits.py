"""Recalib without the limits of its HTTP server: what they cost is the difference.

The application is that of `recalib serve`, on uvicorn's protocol, without limits of heads and
times, and without the checks of heads, browsers and of the size of bodies.
"""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn

from recalib.settings import Settings
from service import run, worker_process
from service.http import browsers, entry, routing


def main(port: int, home: Path) -> None:
    run._export(Settings(home=home, port=port, job_workers=0))
    browsers.BrowserChecks.refusal = lambda *_: None  # type: ignore[method-assign]
    entry.limit_body = routing.limit_body = (  # type: ignore[attr-defined]
        lambda *arguments: arguments[3]
    )
    entry.head_refusal = lambda *_: None  # type: ignore[attr-defined]
    uvicorn.run(
        worker_process.create_app,
        factory=True,
        port=port,
        http="httptools",
        loop="uvloop",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
