"""`Client` and `AsyncClient`: the operations of both, and the HTTP transport of each."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from recalib.client import (
    audit,
    batches,
    calibration,
    calibrators,
    datasets,
    deletion,
    evaluations,
    events,
    health,
    jobs,
    labels,
    models,
    monitoring,
    training,
    updates,
    webhooks,
)
from recalib.client.drivers import AsyncDriver, ListOperation, Operation, SyncDriver
from recalib.client.errors import InvalidResponseError, ServerTimeoutError, UnreachableError
from recalib.client.operations import Deadline, Request, Response, Retries, Session, Sink, Stream
from recalib.core.packages import optional_packages
from recalib.errors import InputError

if TYPE_CHECKING:
    import httpx2

_CONNECT_TIMEOUT_SECONDS = 10.0
#: Bytes of a response body that a sink receives at once.
_CHUNK_BYTES = 1 << 20
#: The second is that of earlier versions.
_KEY_VARIABLES = ("RECALIB_KEY", "RECALIB_API_KEY")


class Operations:
    """The operations of both clients."""

    create_model = Operation(models.create_model)
    get_model = Operation(models.get_model)
    list_models = ListOperation(models.list_models)

    update_model = Operation(updates.update_model)
    delete_model = Operation(deletion.delete_model)

    upload_dataset = Operation(datasets.upload_dataset)
    reference_dataset = Operation(datasets.reference_dataset)
    get_dataset = Operation(datasets.get_dataset)
    download_dataset = Operation(datasets.download_dataset)
    list_datasets = ListOperation(datasets.list_datasets)
    update_dataset = Operation(updates.update_dataset)
    delete_evaluation = Operation(deletion.delete_evaluation)
    delete_batch = Operation(deletion.delete_batch)
    delete_dataset = Operation(deletion.delete_dataset)

    fit = Operation(calibrators.fit)
    publish = Operation(calibrators.publish)
    get_calibrator = Operation(calibrators.get_calibrator)
    list_calibrators = ListOperation(calibrators.list_calibrators)
    download_calibrator = Operation(calibrators.download_calibrator)
    update_calibrator = Operation(updates.update_calibrator)
    delete_calibrator = Operation(deletion.delete_calibrator)

    evaluate = Operation(evaluations.evaluate)
    get_evaluation = Operation(evaluations.get_evaluation)
    list_evaluations = ListOperation(evaluations.list_evaluations)
    download_report = Operation(evaluations.download_report)

    create_batch = Operation(batches.create_batch)
    get_batch = Operation(batches.get_batch)
    list_batches = ListOperation(batches.list_batches)
    download_batch = Operation(batches.download_batch)

    list_aliases = Operation(calibrators.list_aliases)
    promote = Operation(calibrators.promote)
    rollback = Operation(calibrators.rollback)
    alias_history = Operation(calibrators.alias_history)
    delete_alias = Operation(deletion.delete_alias)

    calibrate = Operation(calibration.calibrate)
    predict = Operation(calibration.predict)
    calibrate_top = Operation(calibration.calibrate_top)
    add_labels = Operation(labels.add_labels)
    add_observations = Operation(labels.add_observations)
    add_traffic = Operation(labels.add_traffic)
    get_monitoring = Operation(monitoring.get_monitoring)
    list_monitoring_history = ListOperation(monitoring.list_monitoring_history)
    refit = Operation(monitoring.refit)
    replay = Operation(monitoring.replay)
    drop_candidate = Operation(monitoring.drop_candidate)
    set_monitoring = Operation(monitoring.set_monitoring)

    train = Operation(training.train)
    download_run_file = Operation(training.download_run_file)
    delete_run = Operation(deletion.delete_run)

    wait = Operation(jobs.wait)
    get_job = Operation(jobs.get_job)
    list_jobs = ListOperation(jobs.list_jobs)
    cancel_job = Operation(jobs.cancel_job)

    list_events = ListOperation(events.list_events)
    events = ListOperation(events.events)
    create_webhook = Operation(webhooks.create_webhook)
    list_webhooks = ListOperation(webhooks.list_webhooks)
    get_webhook = Operation(webhooks.get_webhook)
    update_webhook = Operation(webhooks.update_webhook)
    rotate_webhook_secret = Operation(webhooks.rotate_webhook_secret)
    delete_webhook = Operation(webhooks.delete_webhook)
    list_deliveries = ListOperation(webhooks.list_deliveries)
    redeliver = Operation(webhooks.redeliver)

    list_audit = ListOperation(audit.list_audit)

    ready = Operation(health.ready)


class Client(Operations, SyncDriver):
    """A synchronous client of `recalib serve`; a context manager, and safe to use from threads.

    >>> with Client("http://127.0.0.1:8000") as client:             # doctest: +SKIP
    ...     client.create_model("resnet", 10, exist_ok=True)
    ...     client.upload_dataset("resnet", "val", "val.npz")
    ...     job = client.wait(client.fit("resnet", "val"))
    ...     probabilities = client.calibrate("resnet", logits)

    Parameters
    ----------
    url: the server's URL, http or https.
    api_key: sent with every request; by default the value of RECALIB_KEY, if it is set.
    headers: additional headers of every request.
    timeout: seconds for each request, including its retries. The time is checked when bytes
        arrive, so a server that sends slowly can take up to twice as long.
    retries: retries after a missing response or a status of 429, 502, 503 or 504.
    transport: a transport of httpx2, for custom certificates, proxies or Unix sockets.

    Raises
    ------
    InputError: the URL is invalid, or httpx2 is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        retries: Retries | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self.session = _session(url, timeout, retries)
        self._library = _library()
        self._http: httpx2.Client = self._library.Client(
            headers=_headers(api_key, headers), transport=transport, verify=_tls_context()
        )

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _request(self, request: Request) -> Response:
        content = (
            _send_chunks(request.body) if not isinstance(request.body, bytes) else request.body
        )
        try:
            with self._http.stream(**_httpx_arguments(self.session, request, content)) as response:
                sink = request.sink if response.is_success else None
                size = None if sink is None else _CHUNK_BYTES
                chunks = _check_deadline(response.iter_bytes(size), request.seconds)
                body = b"".join(chunks) if sink is None else _receive_chunks(chunks, sink)
                return Response(request, response.status_code, dict(response.headers), body)
        except self._library.RequestError as error:
            raise _transport_error(self._library, self.session, request, error) from error

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


class AsyncClient(Operations, AsyncDriver):
    """An asynchronous client: the methods of `Client` as coroutines, lists as `async for`.

    >>> async with AsyncClient("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     probabilities = await client.calibrate("resnet", logits)

    Parameters and errors are those of `Client`. Here, `timeout` is exact.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        retries: Retries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.session = _session(url, timeout, retries)
        self._library = _library()
        self._http: httpx2.AsyncClient = self._library.AsyncClient(
            headers=_headers(api_key, headers), transport=transport, verify=_tls_context()
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _request(self, request: Request) -> Response:
        from anyio import fail_after

        content = (
            _send_chunks_async(request.body)
            if not isinstance(request.body, bytes)
            else request.body
        )
        arguments = _httpx_arguments(self.session, request, content)
        try:
            with fail_after(request.seconds):
                async with self._http.stream(**arguments) as response:
                    sink = request.sink if response.is_success else None
                    body = await (
                        response.aread() if sink is None else _receive_chunks_async(response, sink)
                    )
                    headers = dict(response.headers)
                    return Response(request, response.status_code, headers, body)
        except (self._library.RequestError, TimeoutError) as error:
            raise _transport_error(self._library, self.session, request, error) from error

    async def _pause(self, seconds: float) -> None:
        from anyio import sleep

        await sleep(seconds)


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    if api_key is None:
        api_key = next(filter(None, map(os.environ.get, _KEY_VARIABLES)), "")
    if not api_key:
        return dict(headers or {})
    if not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
        # The value is a secret, so the error does not repeat it.
        raise InputError(
            "api_key", found="invalid characters", accepted="printable ASCII without spaces"
        )
    return {"Authorization": f"Bearer {api_key}", **(headers or {})}


def _library() -> ModuleType:
    with optional_packages("recalib.client"):
        import httpx2
    return httpx2


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the context of all clients: its certificates take 30 ms to load."""
    return _library().create_ssl_context()


def _session(url: str, timeout: float, retries: Retries | None) -> Session:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        is_valid = is_valid and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:  # the port is not a number
        is_valid = False
    if not is_valid:
        accepted = "the address of a server, such as http://127.0.0.1:8000"
        raise InputError("url", found=repr(url), accepted=accepted)
    if not 0 < timeout < float("inf"):
        raise InputError("timeout", found=f"{timeout}", accepted="a number of seconds above 0")
    return Session(url.rstrip("/"), timeout, retries or Retries())


def _httpx_arguments(session: Session, request: Request, content: Any) -> dict[str, Any]:
    """Return the arguments of httpx2 for a request."""
    headers = dict(request.headers)
    if not isinstance(request.body, bytes):
        headers["Content-Length"] = str(request.body.size)
    connect = (
        _CONNECT_TIMEOUT_SECONDS
        if request.seconds is None
        else min(_CONNECT_TIMEOUT_SECONDS, request.seconds)
    )
    return {
        "method": request.method,
        "url": session.url + request.path,
        "params": dict(request.query),
        "headers": headers,
        "content": content,
        "timeout": (connect, request.seconds, request.seconds, request.seconds),
    }


def _transport_error(
    library: ModuleType, session: Session, request: Request, error: Exception
) -> Exception:
    """Return the error of the client for an error of httpx2."""
    if isinstance(error, library.DecodingError):
        no_response = Response(request, 0, {}, b"")
        return InvalidResponseError(no_response, f"cannot be decompressed: {error}")
    if isinstance(error, library.UnsupportedProtocol | library.LocalProtocolError):
        return InputError("request", found=str(error), accepted="a valid HTTP request")
    if isinstance(error, TimeoutError | library.TimeoutException):
        return ServerTimeoutError(f"no response from {session.url} in time")
    return UnreachableError(f"no response from {session.url}: {error}")


def _check_deadline(chunks: Iterator[bytes], seconds: float | None) -> Iterator[bytes]:
    """Yield the chunks; raise `ServerTimeoutError` if they take more than `seconds`."""
    deadline = Deadline(seconds)
    for chunk in chunks:
        yield chunk
        if deadline.remaining() == 0:
            raise ServerTimeoutError("no end of the response in time")


def _receive_chunks(chunks: Iterator[bytes], sink: Sink) -> bytes:
    """Write the chunks to `sink`; return the rest of the body, which is empty."""
    sink.start()
    for chunk in chunks:
        sink.write(chunk)
    return b""


async def _receive_chunks_async(response: httpx2.Response, sink: Sink) -> bytes:
    """Write in a worker thread, since a disk may be slow."""
    from anyio import to_thread

    await to_thread.run_sync(sink.start)
    async for chunk in response.aiter_bytes(_CHUNK_BYTES):
        await to_thread.run_sync(sink.write, chunk)
    return b""


def _send_chunks(stream: Stream) -> Iterator[bytes]:
    sent_bytes = 0
    for chunk in stream.chunks():
        yield chunk
        sent_bytes += len(chunk)
        stream.on_sent(sent_bytes)


async def _send_chunks_async(stream: Stream) -> AsyncIterator[bytes]:
    """Read in a worker thread, since a disk may be slow."""
    from anyio import to_thread

    sent_bytes, chunks = 0, stream.chunks()
    while chunk := await to_thread.run_sync(next, chunks, b""):
        yield chunk
        sent_bytes += len(chunk)
        stream.on_sent(sent_bytes)
