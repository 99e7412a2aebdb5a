"""A child process that reads uploaded files, with limits on its memory and time.

Parsers of binary formats crash on hostile files, allocate what a header claims, or run for hours.
In the child process this costs one upload. The parent process never parses an uploaded file.

The parent writes one JSON object a line to the child's standard input: a function by its import
path, and its arguments. The child answers with one JSON object a line.
"""

from __future__ import annotations

import contextlib
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
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal

from recalib import errors
from recalib.errors import InputError, RecalibError, UnavailableError

log = logging.getLogger(__name__)

#: Address space of the child. A valid file needs at most one row group or record batch of 256 MiB
#: and its decoded form, besides 300 MiB of libraries.
_MAX_BYTES = 1536 << 20
#: What a field of a request names, and what is accepted there.
_CONTENTS = {
    "data": ("a file", "a complete, undamaged file"),
    "uri": ("a data set", "complete, undamaged files, or fewer of them"),
}
#: A file does not end its reader by these signals. The kernel sends SIGKILL when the machine has no
#: memory left.
_SYSTEM_SIGNALS = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP})
#: One thread and one memory arena a child: each further one reserves address space that the limit
#: counts. OpenBLAS retries for ever if it cannot start its threads.
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(eq=False)
class Call:
    """A call of `function` in a child; its arguments and its result are JSON values."""

    function: Callable[..., Any]
    #: Wall time after which the child is killed.
    seconds: float
    arguments: dict[str, Any]
    #: Whether its caller has left.
    is_cancelled: bool = False


@dataclass(eq=False)
class ReaderProcess:
    """One child process, started by the first call, reused by all, and replaced when it ends.

    One call at a time.

    Parameters
    ----------
    niceness: how far the child stands back behind other processes, as of `os.nice`.
    field: the field of the caller's request that names what is read: `data` for an upload.
    """

    max_bytes: int = _MAX_BYTES
    field: Literal["data", "uri"] = "data"
    niceness: int = 0

    def __post_init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        #: The call in progress. A caller that leaves kills the child only during its call: the
        #: child may serve the next one already.
        self._current: Call | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process ID of the child, or None before the first call and after its end."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def call(self, function: Callable[..., Any], *, seconds: float, **arguments: Any) -> Any:
        """Do the same as `run` for a function and its arguments."""
        return self.run(Call(function, seconds, arguments))

    def run(self, call: Call) -> Any:
        """Call a function in the child and return its result.

        Raises
        ------
        InputError: the function raises it; or it exhausts the memory or the time, or the child
            crashes, and the error names `field`.
        UnavailableError: the function raises it or OSError, or the system ends the child.
        CancelledError: the call was cancelled.
        """
        with self._lock:
            if call.is_cancelled:
                raise CancelledError
            process = self._running()
            self._current = call
        name = f"{call.function.__module__}:{call.function.__qualname__}"
        request = {"function": name, "seconds": call.seconds, "arguments": call.arguments}
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self._kill(call)

        timer = threading.Timer(call.seconds, expire)
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
                is_killed, self._current = self._current is not call, None
        if is_killed or not line.endswith("\n"):
            self.close()
        if line.endswith("\n"):
            return self._result(json.loads(line))
        if expired.is_set():
            raise self._failure("takes", f"more than {call.seconds:g} s to read")
        if is_killed:
            raise CancelledError
        raise self._crash(process.returncode)

    def cancel(self, call: Call) -> None:
        """End a call that is in progress; one that has not begun will not begin."""
        call.is_cancelled = True
        self._kill(call)

    def _kill(self, call: Call) -> None:
        with self._lock:
            if self._current is call and self._process is not None:
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
                self.close()
                raise self._failure("needs", f"more than {self.max_bytes >> 20} MiB to read")
            case "UnavailableError":
                log.warning(
                    "The reader process: %s",
                    answer["reason"],
                    extra={"action": "reader_unavailable"},
                )
                raise UnavailableError(answer["message"])
            case "OSError":
                raise UnavailableError(f"the {self.field} cannot be read: {answer['message']}")
        raise RuntimeError(f"in the reader process: {answer['message']}")

    def _crash(self, status: int) -> RecalibError:
        """Return the error of a call whose child has ended: by its file, or by the system."""
        if status not in _SYSTEM_SIGNALS:
            return self._failure("crashes", f"its reader ({_describe(status)})")
        log.warning(
            "The system ended the reader process (%s).",
            _describe(status),
            extra={"action": "reader_unavailable"},
        )
        return UnavailableError(
            f"the system ended the reader of the {self.field} ({_describe(status)}); try again"
        )

    def _failure(self, verb: str, reason: str) -> InputError:
        content, accepted = _CONTENTS[self.field]
        log.warning(
            "The reader process refuses %s: it %s %s.",
            content,
            verb,
            reason,
            extra={"action": "upload_reader_failed"},
        )
        return InputError(self.field, found=f"{content} that {verb} {reason}", accepted=accepted)

    def _running(self) -> subprocess.Popen[str]:
        """Return the child; start one if there is none."""
        process = self._process
        if process is not None and process.poll() is not None:
            log.warning(
                "The reader process ended with %s between two uploads; starting another.",
                _describe(process.returncode),
                extra={"action": "reader_process_replaced"},
            )
            self.close()
            process = None
        if process is None:
            # Without the settings, which hold passwords.
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("RECALIB_")}
            self._process = process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(self.max_bytes), str(self.niceness)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**inherited, **_ENVIRONMENT},
            )
        return process

    def close(self) -> None:
        """End the child; another call starts another."""
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
    os.nice(int(sys.argv[2]))
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
