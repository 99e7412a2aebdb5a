"""The application of one server process of `recalib serve`.

The process ends when its supervisor does: a supervisor that is killed cannot stop its children, and
they would hold the port for ever.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess

from fastapi import FastAPI

from recalib.observability import logs
from recalib.settings import Settings
from service import app


def create_app() -> FastAPI:
    """Return the application; shut this process down when its parent process ends."""
    logs.configure(Settings())
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    application = app.create_app()
    # A full collection visits every object, and nothing else runs meanwhile: 30 ms for those of the
    # imports. A large body, of whose parts Python makes objects, causes many collections: with the
    # default of one per 700 objects, they take most of the time to parse 1 MiB of JSON.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    return application


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
