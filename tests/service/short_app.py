"""An application with short ways, and requests to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import uvicorn

from recalib.errors import InputError
from service.access.oidc import SigningKeyUnknownError
from service.http.fast_protocol import Round
from service.http.fast_routes import Answer, Asked, Joint, Later, ShortWays
from service.state import State

__all__ = ["LIMIT", "App", "post"]

LIMIT = 300_000


class App:
    """Answers `POST /short/NAME/do` on short ways, and all else by ASGI."""

    def __init__(self) -> None:
        self.short_ways = ShortWays({"/short/{name}/do": self.endpoint})
        settings = SimpleNamespace(max_body_bytes=LIMIT)
        state = cast(
            "State", SimpleNamespace(settings=settings, access=SimpleNamespace(is_wary=False))
        )
        self.state = SimpleNamespace(recalib=state, round=Round())
        #: Of each call of ASGI, the path.
        self.asgi: list[str] = []
        self.server: uvicorn.Server
        #: Whether the issuer of tokens was asked for its keys, as only ASGI's way can.
        self.asked = False
        #: Of each joint work, how many parts it had.
        self.joined: list[int] = []

    def endpoint(self, state: State, asked: Asked) -> Answer | Joint | Later:
        name = asked.path["name"]
        if name == "bad":
            raise InputError("logits", found="nothing", accepted="numbers")
        if name == "joint":
            return Joint(self._together, asked)
        if name == "broken":
            return Joint(_broken, asked)
        if name == "mirror":
            return Answer(asked.body, b"text/plain")
        if name == "array":
            numbers = np.frombuffer(asked.body, "<f4") * 2
            return Answer(b"twice: ", b"text/plain", rest=numbers.data.cast("B"))
        if name == "token" and not self.asked:
            raise SigningKeyUnknownError("the issuer is being asked")
        if name == "later":
            return lambda: _later(asked)
        return _echo(asked)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asgi.append(scope["path"])
        self.asked = True
        answer = self.short_ways.find(scope)
        if answer is not None:
            await answer(self.state.recalib, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        text = f"{scope['method']} {scope['path']} {len(body)}".encode()
        headers = [(b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _together(self, parts: list[Asked]) -> list[Answer]:
        self.joined.append(len(parts))
        return [_echo(one) for one in parts]


def _broken(parts: list[Asked]) -> list[Answer]:
    raise RuntimeError("something surprising")


def _echo(asked: Asked) -> Answer:
    said = ",".join(f"{name}={value}" for name, value in asked.query.items())
    text = f"{asked.path['name']}?{said} {asked.header(b'x-one')} {len(asked.body)}"
    return Answer(text.encode(), b"text/plain", ((b"x-extra", b"1"),))


async def _later(asked: Asked) -> Answer:
    await asyncio.sleep(0.01)
    return _echo(asked)


def post(name: str, body: bytes = b"{}", *headers: str, version: str = "1.1") -> bytes:
    name, _, query = name.partition("?")
    lines = [
        f"POST /short/{name}/do?{query} HTTP/{version}",
        "Host: x",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body
