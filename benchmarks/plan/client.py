"""Connections that send the same request repeatedly."""

from __future__ import annotations

import asyncio

import httpx2


async def closed_loop(url: str, path: str, body: bytes, count: int, connections: int = 8) -> None:
    """Send JSON `count` times over connections that each wait for their answers.

    It costs the client little, so that the server is never idle.
    """
    parts = httpx2.URL(url)
    request = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )

    async def run() -> None:
        reader, writer = await asyncio.open_connection(parts.host, parts.port)
        for _ in range(count // connections):
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(head.partition(b"content-length: ")[2].split()[0]))
            if (status := int(head.split()[1])) != 200:
                raise RuntimeError(f"{path}: status {status}")
        writer.close()

    await asyncio.gather(*(run() for _ in range(connections)))
