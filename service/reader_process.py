"""A child process that reads uploaded files, with limits on its memory and time.

Parsers of binary formats crash on hostile files, allocate what a header claims, or run for hours.
In the child process this costs one upload. The parent process never parses an uploaded file.

The parent writes one JSON object a line to the child's standard input: a function by its import
path, and its arguments. The child answers with one JSON object a line.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import contextvars
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal

from recalib import errors
from recalib.errors import InputError, UnavailableError

log = logging.getLogger(__name__)

#: Address space of the child. A valid file needs at most one row group or record batch of 256 MiB
#: and its decoded form, besides 300 MiB of libraries.
_MAX_BYTES = 1536 << 20
#: Data sets by reference that are read or wait. Each may take half an hour.
_MAX_REFERENCES = 4
#: What a field of a request names, and what is accepted there.
_CONTENTS = {
    "data": ("a file", "a complete, undamaged file"),
    "uri": ("a data set", "complete, undamaged files, or fewer of them"),
}
#: One thread and one memory arena a child: each further one reserves address space that the limit
#: counts. OpenBLAS retries for ever if it cannot start its threads.
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@cache
def reader_process(purpose: Literal["uploads", "references"] = "uploads") -> ReaderProcess:
    """Return a reader process of this server process.

    Data sets by reference may take hours to read, so uploads have another process.
    """
    reader = (
        ReaderProcess(max_calls=_MAX_REFERENCES, field="uri")
        if purpose == "references"
        else ReaderProcess()
    )
    atexit.register(reader._end)  # by then its thread has ended
    return reader


class ReaderProcess:
    """One child process, started by the first call, reused by all, and replaced when it ends.

    Calls run one at a time, in the order of their arrival. Waiting calls hold no thread.

    Parameters
    ----------
    max_calls: calls of `run` that run or wait, at most; None: any number.
    field: the field of the caller's request that names what is read: `data` for an upload.
    """

    def __init__(
        self,
        max_bytes: int = _MAX_BYTES,
        max_calls: int | None = None,
        field: Literal["data", "uri"] = "data",
    ) -> None:
        self._max_bytes = max_bytes
        self._max_calls = max_calls
        self._field = field
        #: Calls of `run` that run or wait.
        self.calls = 0
        self._process: subprocess.Popen[str] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reader-process")
        #: The call in progress. A caller that leaves kills the child only during its call: the
        #: child may serve the next one already.
        self._current: object = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process ID of the child, or None before the first call and after its end."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    async def run(self, function: Callable[..., Any], *, seconds: float, **arguments: Any) -> Any:
        """Call `function` in the child and return its result.

        Parameters
        ----------
        function: a function of a module; its arguments and its result are JSON values.
        seconds: wall time after which the child is killed.

        Raises
        ------
        InputError: the function raises it; or it exhausts the memory or the time, or the child
            crashes, and the error names `field`.
        UnavailableError: the function raises it or OSError, or `max_calls` run or wait already.
        """
        with self._lock:
            if self.calls == self._max_calls:
                raise UnavailableError(f"{self.calls} other files are read or wait; try again")
            self.calls += 1
        key = object()
        call = partial(self._call, key, function, seconds, arguments)
        try:
            future = self._thread.submit(contextvars.copy_context().run, call)
            try:
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                if not future.cancel():  # it runs already, or has ended
                    self._kill(key)
                raise
        finally:
            with self._lock:
                self.calls -= 1

    def call(self, function: Callable[..., Any], *, seconds: float, **arguments: Any) -> Any:
        """Do the same as `run`, for callers without an event loop."""
        return self._thread.submit(self._call, object(), function, seconds, arguments).result()

    def close(self) -> None:
        """End the child after the calls that wait; another call starts another."""
        self._thread.submit(self._end).result()

    def _call(
        self, key: object, function: Callable[..., Any], seconds: float, arguments: dict[str, Any]
    ) -> Any:
        with self._lock:
            process = self._running()
            self._current = key
        name = f"{function.__module__}:{function.__qualname__}"
        request = {"function": name, "seconds": seconds, "arguments": arguments}
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._kill(key)

        timer = threading.Timer(seconds, expire)
        timer.start()
        try:
            _pipe(process.stdin).write(json.dumps(request) + "\n")
            _pipe(process.stdin).flush()
            line = _pipe(process.stdout).readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
            with self._lock:
                is_killed, self._current = self._current is not key, None
        if is_killed or not line.endswith("\n"):
            self._end()
        if not line.endswith("\n"):
            if expired.is_set():
                raise self._failure("takes", f"more than {seconds:g} s to read")
            if is_killed:  # by `run`, which raises CancelledError
                accepted = "one that waits for the result"
                raise InputError(self._field, found="a caller that left", accepted=accepted)
            raise self._failure("crashes", f"its reader ({_describe(process.returncode)})")
        return self._result(json.loads(line))

    def _kill(self, key: object) -> None:
        """Kill the child if this call is in progress."""
        with self._lock:
            if self._current is key and self._process is not None:
                self._process.kill()
                self._current = None

    def _result(self, answer: dict[str, Any]) -> Any:
        match answer["kind"]:
            case "result":
                return answer["value"]
            case "InputError":
                kind = getattr(errors, answer["type"])
                raise kind(answer["field"], found=answer["found"], accepted=answer["accepted"])
            case "MemoryError":
                # Memory that the allocator keeps would count in later uploads.
                self._end()
                raise self._failure("needs", f"more than {self._max_bytes >> 20} MiB to read")
            case "UnavailableError":
                log.warning(
                    "The reader process: %s",
                    answer["reason"],
                    extra={"action": "reader_unavailable"},
                )
                raise UnavailableError(answer["message"])
            case "OSError":
                raise UnavailableError(f"the {self._field} cannot be read: {answer['message']}")
        raise RuntimeError(f"in the reader process: {answer['message']}")

    def _failure(self, verb: str, reason: str) -> InputError:
        content, accepted = _CONTENTS[self._field]
        log.warning(
            "The reader process refuses %s: it %s %s.",
            content,
            verb,
            reason,
            extra={"action": "upload_reader_failed"},
        )
        return InputError(self._field, found=f"{content} that {verb} {reason}", accepted=accepted)

    def _running(self) -> subprocess.Popen[str]:
        """Return the child; start one if there is none."""
        process = self._process
        if process is not None and process.poll() is not None:
            log.warning(
                "The reader process ended with %s between two uploads; starting another.",
                _describe(process.returncode),
                extra={"action": "reader_process_replaced"},
            )
            self._end()
            process = None
        if process is None:
            # Without the settings, which hold passwords.
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("RECALIB_")}
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(self._max_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**inherited, **_ENVIRONMENT},
            )
        return process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError):  # what is buffered for a dead child
                _pipe(stream).close()


def _pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None  # noqa: S101
    return stream


def _describe(status: int) -> str:
    """Return the name of the signal or the exit status that ended a process."""
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def main() -> None:
    """Answer calls from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # so that no library writes between two answers
    _limit(int(sys.argv[1]))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for line in sys.stdin:
        request = json.loads(line)
        module, _, name = request["function"].partition(":")
        function = getattr(import_module(module), name)
        os.dup2(nowhere, 2)  # C++ writes why it aborts, with text of the file, to the server's log
        answers.write(json.dumps(_answer(function, request)) + "\n")
        answers.flush()


def _limit(max_bytes: int) -> None:
    _set_limit(resource.RLIMIT_CORE, 0)
    if sys.platform == "linux":  # macOS refuses RLIMIT_AS
        _set_limit(resource.RLIMIT_AS, max_bytes)
        # If the machine runs out of memory, the kernel ends this process before the server.
        Path("/proc/self/oom_score_adj").write_text("1000")


def _limit_processor_time(seconds: float) -> None:
    """Allow `seconds` more: the limit counts the whole life of the process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _set_limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime + seconds) + 1)


def _set_limit(kind: int, value: int) -> None:
    """Set a soft limit, as high as the hard limit allows."""
    _, hard = resource.getrlimit(kind)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))


def _answer(function: Callable[..., Any], request: dict[str, Any]) -> dict[str, Any]:
    _limit_processor_time(request["seconds"])
    try:
        return {"kind": "result", "value": function(**request["arguments"])}
    except InputError as error:
        if _is_memory_error(error):
            return {"kind": "MemoryError"}
        fields = {"field": error.field, "found": error.found, "accepted": error.accepted}
        return {"kind": "InputError", "type": type(error).__name__, **fields}
    except UnavailableError as error:
        # The child has no log.
        reason = f"{error}: {error.__cause__}" if error.__cause__ else str(error)
        return {"kind": "UnavailableError", "message": str(error), "reason": reason}
    except MemoryError:
        return {"kind": "MemoryError"}
    except OSError as error:
        return {"kind": "OSError", "message": str(error)}
    except Exception:
        return {"kind": "bug", "message": traceback.format_exc()}


def _is_memory_error(error: BaseException | None) -> bool:
    """Return whether an error is a `MemoryError` or has one among its causes."""
    while error is not None and not isinstance(error, MemoryError):
        error = error.__cause__
    return error is not None


if __name__ == "__main__":
    main()
